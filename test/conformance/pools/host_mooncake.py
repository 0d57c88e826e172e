"""vLLM's MooncakeStoreConnector where the KV cache is in CPU memory.

Lookups, keys, copies and events are the connector's own. Only its wait for the GPU ends
at once: on a CPU a step has ended when it returns.
"""

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.connector import MooncakeStoreConnector


class HostEvent:
    def record(self):
        pass

    def synchronize(self):
        pass


class HostMooncakeStoreConnector(MooncakeStoreConnector):
    def __init__(self, *arguments, **named):
        torch.cuda.Event = HostEvent
        super().__init__(*arguments, **named)
