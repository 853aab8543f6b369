"""A logits processor for the real engine: `extra_args["target_token"] = N` leaves only token N.

Loaded by the engine itself (`--logits-processors forced_token:ForcedTokenProcessor`), not by tests.
Values it cannot use are ignored: behind vLLM's Rust frontend nothing checks them, and an exception
here would end the engine.
"""

from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates


class ForcedTokenProcessor(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        self.vocab_size = vllm_config.model_config.get_vocab_size()
        self.targets = {}

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        def target(params, _prompt, _output):
            value = (params.extra_args or {}).get("target_token")
            usable = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < self.vocab_size
            return value if usable else None

        process_dict_updates(self.targets, batch_update, target)

    def apply(self, logits):
        for row, token in self.targets.items():
            kept = logits[row, token].clone()
            logits[row] = float("-inf")
            logits[row, token] = kept
        return logits
