#include <array>

#include "cli/tables.hpp"

namespace fairlead::cli {
namespace {

using enum OptionKind;

constexpr std::string_view kPlace = "Addresses";
constexpr std::string_view kAnswers = "Answers";
constexpr std::string_view kScheduler = "Scheduler";
constexpr std::string_view kHandOff = "Prefill and decode";
constexpr std::string_view kEvents = "KV-cache events";
constexpr std::string_view kFaults = "Faults and age";

/// A row without a `DYN_` variable; the engine itself checks the value.
constexpr OptionSpec row(std::string_view section, std::string_view name, OptionKind kind,
                         std::string_view value_name, std::string_view default_value,
                         std::string_view help) {
  OptionSpec spec;
  spec.name = name;
  spec.kind = kind;
  spec.value_name = value_name;
  spec.default_value = default_value;
  spec.help = help;
  spec.section = section;
  spec.dyn_name = "-";
  return spec;
}

constexpr OptionSpec with_alias(OptionSpec spec, std::string_view alias) {
  spec.alias = alias;
  return spec;
}

constexpr OptionSpec with_choices(OptionSpec spec, std::string_view choices) {
  spec.choices = choices;
  return spec;
}

constexpr auto kMock = std::to_array<OptionSpec>({
    row(kPlace, "config", Text, "FILE", "", "Read options from a file of `key = value` lines"),
    with_choices(row(kPlace, "log-level", Text, "LEVEL", "info",
                     "Severity from which lines are logged to stderr"),
                 "trace,debug,info,warn,error,off"),
    row(kPlace, "listen", Text, "HOST:PORT", "127.0.0.1:50051",
        "Where the engine's interface listens; port 0 takes a free one"),
    row(kPlace, "debug-listen", Text, "HOST:PORT", "",
        "Where /debug/state, /debug/kv, /debug/requests and /debug/fault are served"),

    with_choices(row(kAnswers, "backend", Text, "NAME", "vllm",
                     "What engine to play: vllm (its native gRPC), vllm-http (generation by "
                     "token ids over HTTP), or sglang (its native gRPC)"),
                 "vllm,vllm-http,sglang"),
    with_choices(row(kAnswers, "http-flavor", Text, "NAME", "rust-0.33",
                     "Whose HTTP server to play with `--backend vllm-http`"),
                 "rust-0.33,rust-0.32,python-0.32"),
    row(kAnswers, "model", Text, "NAME", "mocker-model", "Name that the model is served under"),
    row(kAnswers, "model-id", Text, "ID", "",
        "Path or hub id that the engine reports; by default the name"),
    row(kAnswers, "alias", List, "NAME", "", "Further public names"),
    row(kAnswers, "lora", List, "NAME", "", "A loaded LoRA adapter; its answers are its own"),
    row(kAnswers, "instance-id", Text, "ID", "", "Reported identity; by default new per start"),
    row(kAnswers, "seed", Integer, "N", "42",
        "Seed of the tokens of `--reply formula` and `chain`"),
    row(kAnswers, "reply", Text, "KIND", "formula",
        "Which tokens to answer with: formula, chain (each follows from its place and the token "
        "before "
        "it), echo (those of the prompt), or script:FILE (JSON lines of id lists, in order, "
        "repeated)"),
    row(kAnswers, "vocab-size", Integer, "N", "0", "Token ids are below it; 0 accepts any"),
    row(kAnswers, "eos-token-id", List, "ID", "", "Ends of text; the first is the primary one"),
    row(kAnswers, "max-logprobs", Integer, "N", "20", "Most candidates per token"),
    row(kAnswers, "refuse-temperature", Bool, "", "false",
        "Refuse every request that sets a temperature, as some diffusion models do"),
    row(kAnswers, "canvas-eos", Integer, "N", "",
        "Put the EOS id at place N (from 0) of every answer and go on: neither it nor a stop "
        "token of the same id ends the answer"),
    with_alias(
        with_choices(row(kAnswers, "role", Text, "ROLE", "aggregated", "Part in prefill/decode"),
                     "aggregated,prefill,decode"),
        "disaggregation-mode"),
    row(kAnswers, "data-parallel-size", Integer, "N", "1", "Data-parallel ranks"),
    row(kAnswers, "tool-call-parser", Text, "NAME", "", "Parser that the engine reports"),
    row(kAnswers, "reasoning-parser", Text, "NAME", "", "Parser that the engine reports"),
    row(kAnswers, "incremental-streaming-output", Bool, "", "false",
        "SGLang: messages hold what is new, not all tokens so far"),
    row(kAnswers, "stream-interval", Integer, "N", "1", "SGLang: tokens per message"),
    with_choices(row(kAnswers, "load-balance-method", Text, "NAME", "auto",
                     "SGLang: which rank takes a request that names none; auto follows the room on "
                     "a prefill engine"),
                 "auto,round_robin,follow_bootstrap_room"),
    row(kAnswers, "reasoning", Text, "JSON", "", "Token ids and share of simulated reasoning"),

    row(kScheduler, "speedup-ratio", Number, "X", "1", "Divides every delay; 0 removes them"),
    row(kScheduler, "decode-speedup-ratio", Number, "X", "1", "Divides decode delays once more"),
    row(kScheduler, "token-interval-ms", Number, "MS", "0",
        "One token per so long instead of the timing model"),
    row(kScheduler, "startup-time", Number, "SECS", "0", "Listens only after so long"),
    row(kScheduler, "block-size", Integer, "TOKENS", "64", "Tokens per KV block"),
    row(kScheduler, "num-gpu-blocks", Integer, "N", "16384", "KV blocks per rank"),
    row(kScheduler, "max-model-len", Integer, "TOKENS", "",
        "Context length; by default 32768, or what the KV cache holds"),
    row(kScheduler, "max-num-seqs", Integer, "N", "256", "Requests that run at a time"),
    row(kScheduler, "max-num-batched-tokens", Integer, "N", "8192", "Tokens per step"),
    row(kScheduler, "max-concurrent-requests", Integer, "N", "0",
        "Further requests are refused as exhausted; 0 is no limit"),
    row(kScheduler, "max-concurrent-streams", Integer, "N", "1000000",
        "HTTP/2 streams that a connection may have open"),
    row(kScheduler, "enable-prefix-caching", Bool, "", "true", "Keep blocks for later prompts"),
    row(kScheduler, "enable-chunked-prefill", Bool, "", "true",
        "Spread long prompts over several steps"),
    with_choices(row(kScheduler, "preemption-mode", Text, "MODE", "lifo",
                     "Which request gives way when blocks run out"),
                 "lifo,fifo"),
    row(kScheduler, "kv-bytes-per-token", Integer, "BYTES", "0",
        "Size of a hand-off; 0 makes it instant"),
    row(kScheduler, "kv-transfer-bandwidth", Number, "GB/S", "64", "Speed of a hand-off"),
    row(kScheduler, "extra-engine-args", Text, "JSON|FILE", "",
        "Further settings as a JSON object; flags win over it"),

    row(kHandOff, "bootstrap-listen", Text, "HOST:PORT", "",
        "SGLang prefill: where decode engines find it; port 0 takes a free one"),
    row(kHandOff, "bootstrap-timeout-ms", Integer, "MS", "300000",
        "SGLang: how long one half of a request waits for the other"),
    row(kHandOff, "handshake-timeout-ms", Integer, "MS", "14000",
        "SGLang decode: how long after its start a request fails whose prefill engine is not "
        "there"),
    row(kHandOff, "kv-transfer-listen", Text, "HOST:PORT", "",
        "vLLM prefill: keep the blocks of an answered prompt until a decode engine has fetched "
        "them "
        "here; port 0 takes a free one"),
    row(kHandOff, "kv-transfer-timeout-ms", Integer, "MS", "480000",
        "vLLM prefill: how long such blocks are kept"),

    row(kEvents, "kv-events", Text, "HOST:PORT", "", "Publish KV-cache events over ZMQ"),
    row(kEvents, "kv-replay", Text, "HOST:PORT", "", "Replay past events over ZMQ"),
    row(kEvents, "kv-events-topic", Text, "TEXT", "", "Topic of the events"),
    row(kEvents, "kv-events-buffer-steps", Integer, "N", "10000", "Batches kept for replay"),
    with_choices(row(kEvents, "kv-events-layout", Text, "LAYOUT", "map", "Form of the events"),
                 "map,array"),

    row(kFaults, "without", List, "CAP", "", "Play an engine that lacks a capability"),
    row(kFaults, "dialect", Text, "NAME", "",
        "Play a generation of the interface: vllm-0.33, vllm-0.32, vllm-0.28, vllm-generate, "
        "sglang-0.5.23 down to sglang-0.5.16"),
    row(kFaults, "fault", List, "KIND[:ARG]", "",
        "Misbehave: refuse, stall-open[:all], stall-after:N, reset-after:N, end-after:N, "
        "error-after:N:STATUS, slow:MS, drop-event:P, not-serving, logprobs-null, "
        "logprobs-empty, logprobs-short, logprob-nan:N, logprob-unsampled:N, cumulative"),
});

}  // namespace

std::span<const OptionSpec> mock_engine_table() { return kMock; }

}  // namespace fairlead::cli
