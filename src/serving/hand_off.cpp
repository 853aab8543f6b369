#include "serving/hand_off.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "engine/extra_args.hpp"

namespace fairlead::serving {
namespace {

constexpr std::uint64_t kRooms = std::uint64_t{1} << 63U;

// What a pulling connector (NIXL) cannot do without; others have keys of their own.
constexpr std::array<std::string_view, 4> kPullFields{"remote_engine_id", "remote_host",
                                                      "remote_port", "remote_block_ids"};

std::unexpected<Error> missing(std::string_view what) {
  return fail(ErrorCode::HandOffMissing,
              fmt::format("The prefill engine's answer lacks `{}`", what), std::string(what));
}

}  // namespace

HandOff hand_off_of(engine::Backend backend) {
  return backend == engine::Backend::Sglang ? HandOff::Bootstrap : HandOff::AfterPrefill;
}

Result<engine::Bootstrap> make_bootstrap(const fleet::Worker& prefill,
                                         std::optional<std::uint32_t> rank,
                                         std::mt19937_64& random) {
  if (prefill.info.bootstrap_port == 0) {
    return missing("disaggregation_bootstrap_port");
  }
  const std::uint64_t ranks =
      rank ? std::max<std::uint64_t>(prefill.info.data_parallel_size, 1) : 1;
  // Of all rooms below 2^63 that leave the rank over, one.
  const std::uint64_t rest = rank.value_or(0);
  const std::uint64_t rounds = (kRooms - 1 - rest) / ranks + 1;
  const std::uint64_t room = random() % rounds * ranks + rest;
  return engine::Bootstrap{.host = prefill.info.bootstrap_host.empty()
                                       ? prefill.endpoint.host
                                       : prefill.info.bootstrap_host,
                           .port = prefill.info.bootstrap_port,
                           .room = static_cast<std::int64_t>(room)};
}

engine::GenerateRequest prefill_leg(const engine::GenerateRequest& request, HandOff hand_off) {
  engine::GenerateRequest out = request;
  out.leg = engine::Leg::Prefill;
  out.stop.max_tokens = 1;
  out.stop.min_tokens = 1;  // so that the one token is no end of the generation
  if (hand_off == HandOff::AfterPrefill) {
    out.output.logprobs.reset();
    out.output.logprob_token_ids.clear();
    engine::overlay_members(out.kv_transfer_params,
                            json::Object({json::Member{.key = "do_remote_decode", .value = true}}));
  }
  return out;
}

Result<json::Value> take_over(const engine::Finish& finish) {
  const json::Value& params = finish.kv_transfer_params;
  if (!params.as_object()) {
    return missing("kv_transfer_params");
  }
  const json::Value* const pulls = params.find("do_remote_prefill");
  if (pulls && pulls->as_bool() && *pulls->as_bool()) {
    for (const std::string_view field : kPullFields) {
      const json::Value* const value = params.find(field);
      if (!value || value->is_null()) {
        return missing(fmt::format("kv_transfer_params.{}", field));
      }
    }
  }
  return params;
}

}  // namespace fairlead::serving
