#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "mock/faults.hpp"
#include "mock/kv_events.hpp"
#include "mock/reply.hpp"
#include "mock/scheduler.hpp"

namespace fairlead::mock {

/// Part in prefill/decode disaggregation.
enum class Role : std::uint8_t {
  Aggregated,  ///< Does both.
  Prefill,     ///< Computes prompts and hands them on.
  Decode,      ///< Goes on from a hand-off.
};

/// Which engine is played, and over what it is asked for tokens.
enum class Interface : std::uint8_t {
  Grpc,    ///< vLLM's native gRPC services.
  Http,    ///< vLLM's `POST /inference/v1/generate`.
  Sglang,  ///< SGLang's native gRPC service.
};

/// Whose HTTP server is played.
enum class HttpFlavor : std::uint8_t {
  Rust033,    ///< `rust-0.33`.
  Rust032,    ///< `rust-0.32`.
  Python032,  ///< `python-0.32`.
};

/// Which data-parallel rank of an SGLang engine takes a request that names none.
enum class LoadBalance : std::uint8_t {
  Auto,        ///< FollowRoom on a prefill engine, RoundRobin otherwise.
  RoundRobin,  ///< `round_robin`.
  FollowRoom,  ///< `follow_bootstrap_room`: the room modulo the ranks.
};

/// What a simulated server can lack, so that clients meet older ones.
enum class Capability : std::uint8_t {
  ProtoVersion,      ///< `proto-version`: ServerInfo.proto_version (before vllm-rs 0.33).
  NumCachedTokens,   ///< `num-cached-tokens`: FinishInfo.num_cached_tokens (before 0.32).
  Control,           ///< `control`: one service vllm.Generate instead of two (the first servers).
  Discovery,         ///< `discovery`: Control has nothing but Abort.
  KvEventSources,    ///< `kv-event-sources`: Control.GetKvEventSources.
  Health,            ///< `health`: grpc.health.v1.Health.
  DataParallelRank,  ///< `data-parallel-rank`: the metadata is ignored.
  TypedErrors,       ///< `typed-errors`: bad requests are INTERNAL, as in the first servers.
  SampledCandidate,  ///< `sampled-candidate`: candidates leave out the sampled token.
  LocalSize,         ///< `data-parallel-size-local`: ParallelismInfo.data_parallel_size_local.
  AttentionBlock,    ///< `effective-attention-block-size`: the field of ServerInfo.
  VllmXargs,         ///< `vllm-xargs`: no key for extra arguments (HTTP).
  TokenRoute,        ///< `token-route`: generation by ids is switched off (HTTP).
  LogprobTokenIds,   ///< `logprob-token-ids`: candidates cannot be chosen by id.
  BadWordsTokenIds,  ///< `bad-words-token-ids`: the field of that name is ignored (HTTP).
  Lora,              ///< `lora`: adapters are not enabled.
  SamplingExtras,    ///< `sampling-extras`: seed, guided decoding, priority (SGLang before 0.5.17).
  KvDescriptor,      ///< `kv-descriptor`: `kv_events` of GetServerInfo (SGLang before 0.5.18).
  KvEventMaps,       ///< `kv-event-maps`: events as maps (SGLang before 0.5.20).
  WatchState,        ///< `watch-engine-state`: WatchEngineState (SGLang before 0.5.20).
  ReplayTopic,       ///< `replay-topic`: a topic frame in replay answers (SGLang before 0.5.22).
  ReturnText,        ///< `return-text`: text of Generate (SGLang before 0.5.22).
  ReplayDescriptor,  ///< `replay-descriptor`: `replay_endpoint_port_base` (SGLang before 0.5.23).
};

/// Everything `fairlead mock-engine` can be told. Zero means unlimited or off where noted.
struct MockOptions {
  Interface interface = Interface::Grpc;    ///< `--backend vllm`, `vllm-http` or `sglang`.
  HttpFlavor flavor = HttpFlavor::Rust033;  ///< `--http-flavor`.
  std::string listen_host = "127.0.0.1";    ///< `--listen`, numeric host.
  std::uint16_t listen_port = 50051;        ///< `--listen`, 0 = any free port.
  std::optional<std::string> debug_host;    ///< `--debug-listen`; absent = no debug port.
  std::uint16_t debug_port = 0;             ///< `--debug-listen`, 0 = any free port.
  std::string model = "mocker-model";       ///< `--model`: served name.
  std::string model_id;                     ///< `--model-id`; empty = `model`.
  std::vector<std::string> aliases;         ///< `--alias`, repeatable.
  std::vector<std::string> loras;           ///< `--lora`, repeatable: loaded adapters.
  std::string instance_id;                  ///< `--instance-id`; empty = new per start.
  std::uint64_t seed = 42;                  ///< `--seed` of the token formula.
  std::string reply = "formula";            ///< `--reply formula|chain|echo|script:FILE`.
  std::uint64_t vocab_size = 0;             ///< `--vocab-size`, 0 = any id is accepted.
  std::vector<TokenId> eos_token_ids;       ///< `--eos-token-id`; the first is primary.
  std::int64_t max_logprobs = 20;           ///< `--max-logprobs`, -1 = vocabulary size.
  bool refuse_temperature = false;          ///< `--refuse-temperature`.
  std::optional<std::uint64_t> canvas_eos;  ///< `--canvas-eos`: where an EOS is that ends nothing.
  Role role = Role::Aggregated;             ///< `--role`.
  std::uint32_t data_parallel_size = 1;     ///< `--data-parallel-size`.
  std::size_t max_concurrent_requests = 0;  ///< `--max-concurrent-requests`, 0 = no limit.
  std::uint32_t max_streams = 1'000'000;    ///< `--max-concurrent-streams` of a connection.
  std::string tool_call_parser;             ///< `--tool-call-parser`, reported only.
  std::string reasoning_parser;             ///< `--reasoning-parser`, reported only.
  bool incremental_output = false;          ///< `--incremental-streaming-output` (SGLang).
  std::uint32_t stream_interval = 1;        ///< `--stream-interval` in tokens (SGLang).
  LoadBalance load_balance = LoadBalance::Auto;  ///< `--load-balance-method` (SGLang).

  double speedup_ratio = 1.0;          ///< `--speedup-ratio`, 0 = no delays.
  double decode_speedup_ratio = 1.0;   ///< `--decode-speedup-ratio`.
  double token_interval_ms = 0;        ///< `--token-interval-ms`: replaces the model.
  double startup_time_s = 0;           ///< `--startup-time` before it listens.
  std::size_t block_size = 64;         ///< `--block-size` in tokens.
  std::size_t num_gpu_blocks = 16384;  ///< `--num-gpu-blocks` per rank.
  std::uint32_t max_model_len = 0;     ///< `--max-model-len`, 0 = 32768 or what the KV cache holds.
  SchedulerOptions scheduler;          ///< `--max-num-seqs` and kin.
  bool enable_prefix_caching = true;   ///< `--no-enable-prefix-caching`.
  std::uint64_t kv_bytes_per_token = 0;       ///< `--kv-bytes-per-token`, 0 = no transfer time.
  double kv_transfer_bandwidth = 64.0;        ///< `--kv-transfer-bandwidth`, GB/s; 0 = off.
  std::optional<ReasoningOptions> reasoning;  ///< `--reasoning`.

  std::string bootstrap_listen;                 ///< `--bootstrap-listen HOST:PORT`; SGLang prefill.
  std::uint32_t bootstrap_timeout_ms = 300000;  ///< `--bootstrap-timeout-ms`: waits for a peer.
  std::uint32_t handshake_timeout_ms = 14000;  ///< `--handshake-timeout-ms`: a peer counts as lost.
  std::string kv_transfer_listen;              ///< `--kv-transfer-listen HOST:PORT`; vLLM prefill.
  std::uint32_t kv_transfer_timeout_ms = 480000;  ///< `--kv-transfer-timeout-ms`: blocks are freed.

  std::string kv_events;                                ///< `--kv-events HOST:PORT`; empty = none.
  std::string kv_replay;                                ///< `--kv-replay HOST:PORT`; empty = none.
  std::string kv_events_topic;                          ///< `--kv-events-topic`.
  std::size_t kv_events_buffer_steps = 10000;           ///< `--kv-events-buffer-steps`.
  KvEventLayout kv_events_layout = KvEventLayout::Map;  ///< `--kv-events-layout map|array`.

  std::vector<Capability> without;  ///< `--without`, repeatable.
  std::vector<Fault> faults;        ///< `--fault`, repeatable.

  /// True unless the engine plays one without it.
  bool has(Capability capability) const;
  /// The number of a loaded adapter, from 1; 0 for any other name.
  std::uint32_t lora_id(std::string_view name) const;
  /// True when this name or alias is the base model's.
  bool is_base_model(std::string_view name) const;
  /// The balance method with `Auto` resolved.
  LoadBalance resolved_balance() const;
  /// The event layout, as far as the played release knows it.
  KvEventLayout event_layout() const;
};

/// Parses `vllm`, `vllm-http` or `sglang`.
Result<Interface> parse_backend_name(std::string_view text);
/// Parses `rust-0.33`, `rust-0.32` or `python-0.32`.
Result<HttpFlavor> parse_http_flavor(std::string_view text);
/// Parses `aggregated`, `prefill` or `decode`.
Result<Role> parse_role(std::string_view text);
/// The text that `parse_role` reads.
std::string_view role_name(Role role);
/// Parses `auto`, `round_robin` or `follow_bootstrap_room`.
Result<LoadBalance> parse_load_balance(std::string_view text);
/// The text that `parse_load_balance` reads.
std::string_view load_balance_name(LoadBalance method);
/// Parses a capability's name; the error lists all.
Result<Capability> parse_capability(std::string_view text);
/// Capabilities that a wire generation lacks: `vllm-0.33` (none), `vllm-0.32`, `vllm-0.28` or
/// `vllm-generate`, the first one; `sglang-0.5.23` (none) down to `sglang-0.5.16`. The error lists
/// all.
Result<std::vector<Capability>> parse_dialect(std::string_view text);
/// Parses `map` or `array`.
Result<KvEventLayout> parse_kv_event_layout(std::string_view text);
/// Splits `HOST:PORT`; IPv6 hosts in brackets, which are kept.
Result<std::pair<std::string, std::uint16_t>> split_host_port(std::string_view text);

/// Sets what the flag `name` (without dashes) says; flags that may be repeated add to what is
/// there.
/// `--config` and kin are not known here. The error names the flag.
Result<> set_option(MockOptions& options, std::string_view name, std::string_view value);

/// Sets options from a JSON object: the text itself when it begins with `{`, otherwise the content
/// of the file it names. Unknown keys and wrong types are refused; null leaves an option alone.
Result<> apply_extra_engine_args(MockOptions& options, std::string_view text_or_path);

/// Resolves what was left open (`max_model_len`) and checks options against each other. The error
/// names the flag.
Result<> resolve(MockOptions& options);

}  // namespace fairlead::mock
