"""vLLM's CPU offloading where the KV cache is in CPU memory, too.

Its scheduler, manager and events are vLLM's own; only the copies, which the release
makes on GPUs alone, are copies of tensors here.
"""

import torch
from vllm.v1.kv_offload.base import OffloadingWorker, TransferResult
from vllm.v1.kv_offload.cpu.spec import CPUOffloadingSpec


class HostWorker(OffloadingWorker):
    def __init__(self, caches, chunks, blocks_per_chunk):
        self.blocks_per_chunk = blocks_per_chunk
        self.groups = [[caches.tensors[ref.tensor_idx].tensor for ref in refs] for refs in caches.group_data_refs]
        self.copies = [[torch.zeros((chunks * blocks_per_chunk, *one.shape[1:]), dtype=one.dtype) for one in group] for group in self.groups]
        self.finished = []

    def submit_store(self, job_id, src_spec, dst_spec):
        return self.copy(job_id, src_spec, dst_spec, to_cpu=True)

    def submit_load(self, job_id, src_spec, dst_spec):
        return self.copy(job_id, dst_spec, src_spec, to_cpu=False)

    def copy(self, job_id, engine, memory, to_cpu):
        """Chunks of all groups follow one another; a first chunk may begin before the first block."""
        blocks, chunks = engine.block_ids.tolist(), memory.block_ids.tolist()
        per_chunk = self.blocks_per_chunk
        for group, (size, first) in enumerate(zip(engine.group_sizes, engine.block_indices)):
            skipped = first % per_chunk
            count = -(-(size + skipped) // per_chunk) if size else 0
            places = [chunk * per_chunk + part for chunk in chunks[:count] for part in range(per_chunk)]
            ours, chunks = places[skipped : skipped + size], chunks[count:]
            theirs, blocks = blocks[:size], blocks[size:]
            for cache, copy in zip(self.groups[group], self.copies[group]):
                if to_cpu:
                    copy[ours] = cache[theirs]
                else:
                    cache[theirs] = copy[ours]
        self.finished.append(TransferResult(job_id=job_id, success=True))
        return True

    def get_finished(self):
        finished, self.finished = self.finished, []
        return finished

    def wait(self, job_ids):
        pass


class HostOffloadingSpec(CPUOffloadingSpec):
    def get_worker(self, kv_caches):
        if not self._worker:
            self._worker = HostWorker(kv_caches, self.num_chunks, self.blocks_per_chunk)
        return self._worker
