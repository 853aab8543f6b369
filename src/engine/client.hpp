#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"
#include "engine/capability.hpp"
#include "engine/request.hpp"
#include "net/reactor.hpp"
#include "net/socket.hpp"
#include "net/task.hpp"

namespace fairlead::engine {

/// A candidate token at one position.
struct Candidate {
  TokenId id = 0;          ///< Token.
  float logprob = 0;       ///< Natural logarithm.
  std::uint32_t rank = 0;  ///< 1 = most likely; 0 = none given.
};

/// Log-probabilities of one token.
struct TokenLogprob {
  float logprob = 0;                  ///< Of the token itself.
  std::uint32_t rank = 0;             ///< 1 = most likely; 0 = none given.
  std::vector<Candidate> candidates;  ///< In the engine's order; may repeat the token itself.
  bool missing = false;  ///< The engine gave no finite value: `logprob` is kLowestLogprob and
                         ///< there are no candidates.
};

/// Reported for a log-probability that is not finite, missing, or below it: JSON has no infinity.
inline constexpr float kLowestLogprob = -9999.0F;

/// Why a generation ended.
enum class FinishReason : std::uint8_t {
  Stop,     ///< EOS, or a stop token.
  Length,   ///< max_tokens or the context.
  Aborted,  ///< Aborted on the engine.
};

/// The terminal facts of a generation.
struct Finish {
  FinishReason reason = FinishReason::Stop;           ///< Why.
  std::optional<TokenId> stop_token_id;               ///< A requested stop token matched.
  std::optional<TokenId> eos_token_id;                ///< The primary EOS matched.
  std::uint32_t output_tokens = 0;                    ///< Total, equal to the tokens delivered.
  std::optional<std::uint32_t> cached_prompt_tokens;  ///< Prompt tokens served from the cache.
  json::Value kv_transfer_params;                     ///< Hand-off of a prefill; null when none.
  json::Value ec_transfer_params;                     ///< Null when none.
};

/// Facts about the prompt, before the first token.
struct PromptInfo {
  std::uint32_t prompt_tokens = 0;         ///< As counted by the engine.
  std::span<const TokenLogprob> logprobs;  ///< Per prompt token when asked for; else empty.
};

/// Tokens of one engine message. Spans are valid during the call only.
struct TokenChunk {
  std::span<const TokenId> ids;            ///< New tokens; may be empty on the last chunk.
  std::span<const TokenLogprob> logprobs;  ///< One per id when asked for; else empty.
  const Finish* finish = nullptr;          ///< Set on the last chunk.
};

/// Receives one generation's messages, inline, in the request's reactor. Must not destroy the
/// stream from inside a callback. After a chunk with `finish`, or after `on_error`, nothing
/// follows.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  /// At most once, before the first chunk.
  virtual void on_prompt(const PromptInfo& info) { static_cast<void>(info); }
  /// New tokens.
  virtual void on_tokens(const TokenChunk& chunk) = 0;
  /// `bytes` of a large message are gathered whose end has not come; 0 when it is handed on. False:
  /// so much may not be gathered. The call drops it and ends then, and nothing follows.
  virtual bool on_unfinished(std::size_t bytes) {
    static_cast<void>(bytes);
    return true;
  }
  /// The generation failed.
  virtual void on_error(Error error) = 0;
};

/// One running generation. Destroying an unfinished one aborts it on the engine, without blocking.
class EngineStream {
 public:
  virtual ~EngineStream() = default;
  /// Stops reading this generation until `resume`; the engine's neighbours are not affected.
  virtual void pause() = 0;
  /// Goes on reading.
  virtual void resume() = 0;
  /// True when the engine says nothing before the whole answer, so that its silence means nothing.
  virtual bool silent_until_done() const { return false; }
};

/// Where an engine publishes KV-cache events of one data-parallel rank.
struct KvEventSource {
  std::string endpoint;                  ///< ZMQ PUB, wildcard host already replaced.
  std::string replay_endpoint;           ///< ZMQ ROUTER; empty = no replay.
  std::string topic;                     ///< Subscription prefix; may be empty.
  std::uint32_t data_parallel_rank = 0;  ///< Which rank.
  std::uint32_t buffer_steps = 0;        ///< Batches kept for replay; 0 = unknown.

  bool operator==(const KvEventSource&) const = default;
};

/// What a probe learns about an engine. Zero means unknown where a count cannot be zero.
struct EngineInfo {
  std::string model_id;                    ///< Path or hub id.
  std::string served_model_name;           ///< Public name.
  std::vector<std::string> aliases;        ///< Further public names.
  std::string engine_version;              ///< For logs.
  std::string proto_version;               ///< Wire schema version; empty on older servers.
  std::string dialect;                     ///< Wire generation spoken, for logs.
  std::string instance_id;                 ///< Identifies one life of the engine process.
  std::uint32_t max_model_len = 0;         ///< Context length in tokens.
  std::uint32_t kv_block_size = 0;         ///< Tokens per KV block, as events and routing see it.
  std::uint64_t total_kv_blocks = 0;       ///< Per rank.
  std::uint64_t max_running_requests = 0;  ///< Per engine.
  std::uint64_t max_batched_tokens = 0;    ///< Per step.
  std::uint32_t data_parallel_start = 0;   ///< First local rank.
  std::uint32_t data_parallel_size = 1;    ///< Local ranks.
  std::optional<Leg> role;                 ///< What it was started for; nothing when its wire does
                                           ///< not tell.
  std::string bootstrap_host;        ///< Prefill on SGLang: see Bootstrap. Empty = that of the
                                     ///< endpoint.
  std::uint16_t bootstrap_port = 0;  ///< Likewise; 0 = none.
  CapabilitySet capabilities;        ///< What requests may ask of it.
  std::vector<std::string> lora_adapters;  ///< Names of the loaded adapters.
  std::vector<std::string> lora_paths;     ///< Their files, in the same order, or empty; each may
                                           ///< be empty.
  std::string tool_call_parser;            ///< As the engine names it; reported, never adopted.
  std::string reasoning_parser;            ///< Likewise.
  std::vector<KvEventSource> kv_event_sources;  ///< One per rank, or empty.
  std::vector<std::string> warnings;            ///< What the probe had to leave out or assume.

  bool operator==(const EngineInfo&) const = default;
};

/// How full one rank's KV cache is.
struct KvUsage {
  std::uint32_t rank = 0;  ///< Data-parallel rank.
  double share = 0;        ///< Of its blocks that running requests occupy, 0 to 1.

  bool operator==(const KvUsage&) const = default;
};

/// Most aliases, and most adapters, that are taken from one engine; and most bytes of a name.
inline constexpr std::size_t kMaxAliases = 64;
inline constexpr std::size_t kMaxAdapters = 4096;        ///< Likewise.
inline constexpr std::size_t kMaxModelNameBytes = 1024;  ///< Likewise.

/// Applies these bounds to what an engine reports: names beyond them are left out with a warning. A
/// primary name that is too long is EngineProtocol.
Result<> bound_names(EngineInfo& info);

/// One engine's wire, in one reactor. Outlives its streams.
class EngineClient {
 public:
  virtual ~EngineClient() = default;
  /// Asks the engine what it is. Errors: unreachable, not serving, protocol.
  virtual net::Task<Result<EngineInfo>> probe(net::TimePoint deadline) = 0;
  /// Cheap liveness check: success while the engine says it is serving.
  virtual net::Task<Result<>> check_health(net::TimePoint deadline) = 0;
  /// True when `kv_usage` may tell something on this wire.
  virtual bool reports_kv_usage() const { return false; }
  /// Asks how full the caches are. Ranks that the engine does not tell of are missing. Errors:
  /// those of `check_health`, and UnsupportedField when the wire has no such thing.
  virtual net::Task<Result<std::vector<KvUsage>>> kv_usage(net::TimePoint deadline) {
    static_cast<void>(deadline);
    co_return fail(ErrorCode::UnsupportedField, "this interface does not tell the KV usage");
  }
  /// Starts a generation. Events come in later turns. Requests the wire cannot express are refused
  /// with UnsupportedField before anything is sent. The sink must outlive the stream.
  virtual Result<std::unique_ptr<EngineStream>> open(const GenerateRequest& request,
                                                     TokenSink& sink) = 0;
  /// Replaces the addresses used by later connections.
  virtual void set_addresses(std::vector<net::Address> addresses) = 0;
};

/// The engine families.
enum class Backend : std::uint8_t {
  Vllm,      ///< `vllm`: vLLM's own gRPC interface.
  VllmHttp,  ///< `vllm-http`: vLLM's token route over HTTP, `/inference/v1/generate`.
  Sglang,    ///< `sglang`: SGLang's native gRPC interface, `sglang.runtime.v1`.
};

/// Who makes the engines of a kind. Only engines of one maker hand KV caches to one another.
std::string_view maker_name(Backend backend);
/// The command-line name of a family.
std::string_view backend_name(Backend backend);
/// The family of a command-line name.
std::optional<Backend> find_backend(std::string_view name);

/// Where an engine is and what is already known about it.
struct ClientOptions {
  Backend backend = Backend::Vllm;      ///< Which wire.
  std::string authority;                ///< `HOST:PORT` as sent to the server.
  std::vector<net::Address> addresses;  ///< Resolved addresses.
  std::string dialect;                  ///< From a former probe; empty = find out.
  std::string model;                    ///< Served name sent in requests; empty = the primary.
};

/// Makes a client in the current reactor; `dialer` must outlive it.
std::unique_ptr<EngineClient> make_client(net::Dialer& dialer, ClientOptions options);

}  // namespace fairlead::engine
