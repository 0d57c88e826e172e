"""An executor without a model: vLLM's scheduler, cache and events are real, tokens are not.

For kinds of attention whose kernels a CPU build lacks. The kind's layers are given
as cache specs; the model of the command line is a carrier that is never loaded.
"""

import json
import os
from concurrent.futures import Future

import torch
import vllm.v1.kv_cache_interface as interface
from vllm.v1.executor.abstract import Executor
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.worker.worker_base import CompilationTimes

GIB = 2**30


class NoForwardExecutor(Executor):
    def _init_executor(self):
        kind = json.loads(os.environ["CAPTURE_DRIVEN"])
        self.layers = {f"model.layers.{index}.attn": spec_of(layer) for index, layer in enumerate(kind["layers"])}
        # Answers of a recorded run, in order of requests; else tokens of a counter.
        self.answers = kind.get("answers")
        self.prompts = {}
        self.requests = 0

    def collective_rpc(self, method, timeout=None, args=(), kwargs=None, non_block=False, single_value=False):
        answers = {
            "get_kv_cache_spec": self.layers,
            "determine_available_memory": GIB,
            "get_supported_kv_cache_layouts": ["NHD"],
            "compile_or_warm_up_model": CompilationTimes(language_model=0.0, encoder=0.0),
            "get_supported_tasks": ("generate",),
        }
        answer = answers.get(method)
        return answer if single_value else [answer]

    def execute_model(self, scheduler_output, non_block=False):
        output = self.output_of(scheduler_output)
        if not non_block:
            return output
        future = Future()
        future.set_result(output)
        return future

    def output_of(self, scheduler_output):
        starts = {}
        for request in scheduler_output.scheduled_new_reqs:
            self.prompts[request.req_id] = (self.requests, len(request.prompt_token_ids))
            self.requests += 1
            starts[request.req_id] = request.num_computed_tokens
        cached = scheduler_output.scheduled_cached_reqs
        starts.update(zip(cached.req_ids, cached.num_computed_tokens))
        ids = list(scheduler_output.num_scheduled_tokens)
        tokens = []
        for request_id, count in scheduler_output.num_scheduled_tokens.items():
            number, length = self.prompts[request_id]
            position = starts[request_id] + count - length
            tokens.append([self.token(number, position)] if position >= 0 else [])
        return ModelRunnerOutput(ids, {request_id: index for index, request_id in enumerate(ids)}, sampled_token_ids=tokens)

    def token(self, number, position):
        return self.answers[number][position] if self.answers else 30 + (number * 7 + position * position) % 60

    def check_health(self):
        pass


def spec_of(layer):
    name, fields = layer
    dtypes = {"dtype": lambda value: getattr(torch, value), "dtypes": lambda values: tuple(getattr(torch, value) for value in values)}
    read = {"shapes": lambda shapes: tuple(map(tuple, shapes)), **dtypes}
    return getattr(interface, name)(**{key: read.get(key, lambda value: value)(value) for key, value in fields.items()})
