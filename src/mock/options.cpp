#include "mock/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace fairlead::mock {
namespace {

constexpr std::size_t kDefaultModelLength = 32768;

template <class T>
struct Named {
  std::string_view name;
  T value;
};

constexpr std::array<Named<Interface>, 3> kBackends = {{
    {"vllm", Interface::Grpc},
    {"vllm-http", Interface::Http},
    {"sglang", Interface::Sglang},
}};

constexpr std::array<Named<LoadBalance>, 3> kLoadBalances = {{
    {"auto", LoadBalance::Auto},
    {"round_robin", LoadBalance::RoundRobin},
    {"follow_bootstrap_room", LoadBalance::FollowRoom},
}};

constexpr std::array<Named<HttpFlavor>, 3> kFlavors = {{
    {"rust-0.33", HttpFlavor::Rust033},
    {"rust-0.32", HttpFlavor::Rust032},
    {"python-0.32", HttpFlavor::Python032},
}};

constexpr std::array<Named<Role>, 3> kRoles = {{
    {"aggregated", Role::Aggregated},
    {"prefill", Role::Prefill},
    {"decode", Role::Decode},
}};

constexpr std::array<Named<Capability>, 23> kCapabilities = {{
    {"proto-version", Capability::ProtoVersion},
    {"num-cached-tokens", Capability::NumCachedTokens},
    {"control", Capability::Control},
    {"discovery", Capability::Discovery},
    {"kv-event-sources", Capability::KvEventSources},
    {"health", Capability::Health},
    {"data-parallel-rank", Capability::DataParallelRank},
    {"typed-errors", Capability::TypedErrors},
    {"sampled-candidate", Capability::SampledCandidate},
    {"data-parallel-size-local", Capability::LocalSize},
    {"effective-attention-block-size", Capability::AttentionBlock},
    {"vllm-xargs", Capability::VllmXargs},
    {"token-route", Capability::TokenRoute},
    {"logprob-token-ids", Capability::LogprobTokenIds},
    {"bad-words-token-ids", Capability::BadWordsTokenIds},
    {"lora", Capability::Lora},
    {"sampling-extras", Capability::SamplingExtras},
    {"kv-descriptor", Capability::KvDescriptor},
    {"kv-event-maps", Capability::KvEventMaps},
    {"watch-engine-state", Capability::WatchState},
    {"replay-topic", Capability::ReplayTopic},
    {"return-text", Capability::ReturnText},
    {"replay-descriptor", Capability::ReplayDescriptor},
}};

constexpr std::array<Named<KvEventLayout>, 2> kLayouts = {{
    {"map", KvEventLayout::Map},
    {"array", KvEventLayout::Array},
}};

template <class T, std::size_t N>
Result<T> parse_name(const std::array<Named<T>, N>& table, std::string_view text,
                     std::string_view flag) {
  std::string known;
  for (const Named<T>& row : table) {
    if (row.name == text) {
      return row.value;
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  }
  return fail(ErrorCode::InvalidRequest, fmt::format("no `{}`; known: {}", text, known),
              std::string(flag));
}

}  // namespace

bool MockOptions::has(Capability capability) const {
  return std::ranges::find(without, capability) == without.end();
}

std::uint32_t MockOptions::lora_id(std::string_view name) const {
  const auto found = std::ranges::find(loras, name);
  return found == loras.end() || !has(Capability::Lora)
             ? 0
             : static_cast<std::uint32_t>(found - loras.begin() + 1);
}

bool MockOptions::is_base_model(std::string_view name) const {
  return name == model || std::ranges::find(aliases, name) != aliases.end();
}

LoadBalance MockOptions::resolved_balance() const {
  if (load_balance != LoadBalance::Auto) {
    return load_balance;
  }
  return role == Role::Prefill ? LoadBalance::FollowRoom : LoadBalance::RoundRobin;
}

KvEventLayout MockOptions::event_layout() const {
  return has(Capability::KvEventMaps) ? kv_events_layout : KvEventLayout::Array;
}

Result<Interface> parse_backend_name(std::string_view text) {
  return parse_name(kBackends, text, "--backend");
}

Result<HttpFlavor> parse_http_flavor(std::string_view text) {
  return parse_name(kFlavors, text, "--http-flavor");
}

Result<Role> parse_role(std::string_view text) { return parse_name(kRoles, text, "--role"); }

std::string_view role_name(Role role) {
  return std::ranges::find(kRoles, role, &Named<Role>::value)->name;
}

Result<LoadBalance> parse_load_balance(std::string_view text) {
  return parse_name(kLoadBalances, text, "--load-balance-method");
}

std::string_view load_balance_name(LoadBalance method) {
  return std::ranges::find(kLoadBalances, method, &Named<LoadBalance>::value)->name;
}

Result<Capability> parse_capability(std::string_view text) {
  return parse_name(kCapabilities, text, "--without");
}

Result<std::vector<Capability>> parse_dialect(std::string_view text) {
  // Newest first; each lacks what it names and whatever the ones above it lack.
  struct Generation {
    std::string_view name;
    std::vector<Capability> lost;
  };
  using enum Capability;
  static const std::vector<Generation> vllm = {
      {"vllm-0.33", {}},
      {"vllm-0.32", {ProtoVersion}},
      {"vllm-0.28", {NumCachedTokens, AttentionBlock}},
      {"vllm-generate",
       {Control, Discovery, KvEventSources, DataParallelRank, TypedErrors, SampledCandidate,
        LocalSize}},
  };
  static const std::vector<Generation> sglang = {
      {"sglang-0.5.23", {}},
      {"sglang-0.5.22", {ReplayDescriptor}},
      {"sglang-0.5.21", {KvEventSources, ReplayTopic, ReturnText}},
      {"sglang-0.5.20", {}},
      {"sglang-0.5.19", {KvEventMaps, WatchState}},
      {"sglang-0.5.18", {}},
      {"sglang-0.5.17", {KvDescriptor}},
      {"sglang-0.5.16", {SamplingExtras}},
  };
  std::string known;
  for (const auto& generations : {vllm, sglang}) {
    std::vector<Capability> missing;
    for (const Generation& generation : generations) {
      missing.insert(missing.end(), generation.lost.begin(), generation.lost.end());
      if (generation.name == text) {
        return missing;
      }
      known += fmt::format("{}{}", known.empty() ? "" : ", ", generation.name);
    }
  }
  return fail(ErrorCode::InvalidRequest, fmt::format("no `{}`; known: {}", text, known),
              "--dialect");
}

Result<KvEventLayout> parse_kv_event_layout(std::string_view text) {
  return parse_name(kLayouts, text, "--kv-events-layout");
}

Result<std::pair<std::string, std::uint16_t>> split_host_port(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  const std::string_view port_text =
      colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
  std::uint16_t port = 0;
  const auto [end, error] =
      std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  if (port_text.empty() || error != std::errc() || end != port_text.data() + port_text.size() ||
      colon == 0) {
    return fail(ErrorCode::InvalidRequest, fmt::format("`{}` is not HOST:PORT", text));
  }
  return std::pair(std::string(text.substr(0, colon)), port);
}

Result<> resolve(MockOptions& options) {
  const auto wrong = [](std::string_view flag, std::string_view why) {
    return fail(ErrorCode::InvalidRequest, fmt::format("{} {}", flag, why), std::string(flag));
  };
  if (options.block_size < 1 || options.block_size > 65536) {
    return wrong("--block-size", "must be 1 to 65536");
  }
  if (options.num_gpu_blocks < 2 || options.num_gpu_blocks > 16'777'216) {
    return wrong("--num-gpu-blocks", "must be 2 to 16777216 (one block is never handed out)");
  }
  const std::size_t capacity = (options.num_gpu_blocks - 1) * options.block_size;
  if (options.max_model_len == 0) {
    options.max_model_len =
        static_cast<std::uint32_t>(std::min<std::size_t>(capacity, kDefaultModelLength));
  }
  if (options.max_model_len < 2) {
    return wrong("--max-model-len", "must be at least 2");
  }
  if (options.max_model_len > capacity) {
    return wrong("--max-model-len", fmt::format("{} does not fit {} usable KV blocks of {} tokens",
                                                options.max_model_len, options.num_gpu_blocks - 1,
                                                options.block_size));
  }
  if (options.scheduler.max_running < 1 || options.scheduler.max_batched_tokens < 1) {
    return wrong("--max-num-seqs", "and --max-num-batched-tokens must be at least 1");
  }
  if (!(options.speedup_ratio >= 0) || !(options.decode_speedup_ratio >= 0)) {
    return wrong("--speedup-ratio", "must not be negative");
  }
  if (!(options.token_interval_ms >= 0) || options.token_interval_ms > 3.6e6) {
    return wrong("--token-interval-ms", "must be 0 to 3600000");
  }
  if (options.data_parallel_size < 1 || options.data_parallel_size > 64) {
    return wrong("--data-parallel-size", "must be 1 to 64");
  }
  if (options.max_streams < 1) {
    return wrong("--max-concurrent-streams", "must be at least 1");
  }
  if (options.kv_events.empty() && !options.kv_replay.empty()) {
    return wrong("--kv-replay", "needs --kv-events");
  }
  if (options.stream_interval < 1) {
    return wrong("--stream-interval", "must be at least 1");
  }
  const bool sglang = options.interface == Interface::Sglang;
  const bool prefill = options.role == Role::Prefill;
  if (!options.bootstrap_listen.empty() && !(sglang && prefill)) {
    return wrong("--bootstrap-listen", "is for `--backend sglang --role prefill`");
  }
  if (sglang && prefill && options.bootstrap_listen.empty()) {
    options.bootstrap_listen = fmt::format("{}:0", options.listen_host);
  }
  if (!options.kv_transfer_listen.empty() && (sglang || !prefill)) {
    return wrong("--kv-transfer-listen", "is for a vLLM engine with `--role prefill`");
  }
  if (options.canvas_eos && options.eos_token_ids.empty()) {
    return wrong("--canvas-eos", "needs --eos-token-id");
  }
  for (const std::string& lora : options.loras) {
    if (lora.empty() || options.is_base_model(lora) ||
        std::ranges::count(options.loras, lora) > 1) {
      return wrong("--lora", fmt::format("`{}` is empty, named twice, or the model's", lora));
    }
  }
  if (options.max_logprobs < -1) {
    return wrong("--max-logprobs", "must be -1 or more");
  }
  return {};
}

}  // namespace fairlead::mock
