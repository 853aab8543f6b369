#include "engine/vllm_grpc/response.hpp"

#include <fmt/format.h>
#include <google/protobuf/stubs/logging.h>

#include <cmath>
#include <span>
#include <utility>

#include "engine/vllm_grpc/json_struct.hpp"
#include "engine/vllm_grpc/token_message.hpp"
#include "vllm/inference.pb.h"

namespace fairlead::engine::vllm_grpc {
namespace {

/// Messages above this size (log-probabilities over the vocabulary) do not leave their memory
/// behind.
constexpr std::size_t kKeptBytes = 256 * 1024;

float normal_logprob(float value) {
  return std::isfinite(value) && value >= kLowestLogprob ? value : kLowestLogprob;
}

std::unexpected<Error> protocol_error(std::string message) {
  return fail(ErrorCode::EngineProtocol, "GenerateStream: " + std::move(message));
}

/// Fills `out` from the parallel arrays of a prompt or output message, which must have `count`
/// entries each.
template <class Message>
Result<> fill_logprobs(const Message& message, std::size_t count, std::vector<TokenLogprob>& out) {
  const auto logprobs = static_cast<std::size_t>(message.logprobs_size());
  const auto ranks = static_cast<std::size_t>(message.ranks_size());
  const auto candidates = static_cast<std::size_t>(message.candidate_tokens_size());
  if (logprobs != count || ranks != count || candidates != count) {
    return protocol_error(fmt::format("{} logprobs, {} ranks and {} candidate lists for {} tokens",
                                      logprobs, ranks, candidates, count));
  }
  if (out.size() < count) {
    out.resize(count);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = static_cast<int>(i);
    TokenLogprob& entry = out[i];
    entry.missing = !std::isfinite(message.logprobs(at));
    entry.logprob = normal_logprob(message.logprobs(at));
    entry.rank = entry.missing ? 0 : message.ranks(at);
    entry.candidates.clear();
    if (entry.missing) {
      continue;
    }
    for (const auto& token : message.candidate_tokens(at).tokens()) {
      entry.candidates.push_back({token.id(), normal_logprob(token.logprob()), token.rank()});
    }
  }
  return {};
}

}  // namespace

ResponseScratch::ResponseScratch() : message_(std::make_unique<::vllm::GenerateResponse>()) {
  // Malformed messages are reported by their parser's result; its own lines on stderr would bypass
  // the log.
  static const auto former = google::protobuf::SetLogHandler(nullptr);
  static_cast<void>(former);
}
ResponseScratch::~ResponseScratch() = default;

ResponseTranslator::ResponseTranslator(const GenerateRequest& request)
    : prompt_tokens_(static_cast<std::uint32_t>(request.prompt.size())),
      max_tokens_(request.stop.max_tokens),
      wants_logprobs_(request.output.wants_logprobs()),
      wants_prompt_logprobs_(request.output.prompt_logprobs.has_value()) {}

Result<> ResponseTranslator::feed(ResponseScratch& scratch, std::string_view bytes,
                                  TokenSink& sink) {
  if (finished_) {
    return {};
  }
  const bool plain = !wants_logprobs_ && (prompt_seen_ || !wants_prompt_logprobs_);
  if (plain && decode_token_message(bytes, scratch.ids_)) [[likely]] {
    if (Result<> counted = count_tokens(scratch.ids_.size()); !counted) {
      return counted;
    }
    sink.on_tokens({.ids = scratch.ids_, .logprobs = {}, .finish = nullptr});
    return {};
  }
  if (!scratch.message_->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return protocol_error("a message could not be decoded");
  }
  Result<> done = feed_parsed(scratch, sink);
  if (bytes.size() > kKeptBytes) {
    scratch.message_ = std::make_unique<::vllm::GenerateResponse>();
    std::vector<TokenId>().swap(scratch.ids_);
    std::vector<TokenLogprob>().swap(scratch.logprobs_);
  }
  return done;
}

Result<> ResponseTranslator::feed_parsed(ResponseScratch& scratch, TokenSink& sink) {
  if (scratch.message_->has_prompt_info()) {
    if (Result<> done = on_prompt_info(scratch, sink); !done) {
      return done;
    }
  }
  if (scratch.message_->has_outputs()) {
    return on_outputs(scratch, sink);
  }
  return {};
}

Result<> ResponseTranslator::on_prompt_info(ResponseScratch& scratch, TokenSink& sink) {
  const ::vllm::PromptInfo& info = scratch.message_->prompt_info();
  if (prompt_seen_ || output_tokens_ > 0) {
    return protocol_error("prompt_info came again or behind output tokens");
  }
  if (info.num_prompt_tokens() != prompt_tokens_) {
    return protocol_error(fmt::format("the engine counts {} prompt tokens where {} were sent",
                                      info.num_prompt_tokens(), prompt_tokens_));
  }
  std::span<const TokenLogprob> logprobs;
  if (wants_prompt_logprobs_) {
    if (Result<> done = fill_logprobs(info, prompt_tokens_, scratch.logprobs_); !done) {
      return done;
    }
    logprobs = std::span(scratch.logprobs_).first(prompt_tokens_);
  }
  prompt_seen_ = true;
  sink.on_prompt({.prompt_tokens = prompt_tokens_, .logprobs = logprobs});
  return {};
}

Result<> ResponseTranslator::on_outputs(ResponseScratch& scratch, TokenSink& sink) {
  const ::vllm::SequenceOutput& outputs = scratch.message_->outputs();
  const auto tokens = static_cast<std::size_t>(outputs.token_ids_size());
  if (outputs.index() != 0) {
    return protocol_error(
        fmt::format("output index {} where one sequence was asked for", outputs.index()));
  }
  if (outputs.num_tokens() != tokens) {
    return protocol_error(
        fmt::format("{} token ids where num_tokens is {}", tokens, outputs.num_tokens()));
  }
  if (wants_prompt_logprobs_ && !prompt_seen_) {
    return protocol_error("output without the prompt_info that was asked for");
  }
  std::span<const TokenLogprob> logprobs;
  if (wants_logprobs_ && tokens > 0) {
    if (Result<> done = fill_logprobs(outputs, tokens, scratch.logprobs_); !done) {
      return done;
    }
    logprobs = std::span(scratch.logprobs_).first(tokens);
  }
  if (Result<> counted = count_tokens(tokens); !counted) {
    return counted;
  }
  Finish finish;
  if (outputs.has_finish_info()) {
    if (Result<> done = make_finish(scratch, finish); !done) {
      return done;
    }
    finished_ = true;
  } else if (tokens == 0) {
    return {};
  }
  scratch.ids_.assign(outputs.token_ids().begin(), outputs.token_ids().end());
  sink.on_tokens(
      {.ids = scratch.ids_, .logprobs = logprobs, .finish = finished_ ? &finish : nullptr});
  return {};
}

Result<> ResponseTranslator::count_tokens(std::size_t tokens) {
  if (tokens > max_tokens_ - output_tokens_) [[unlikely]] {
    return protocol_error(fmt::format("more than the {} tokens that were asked for", max_tokens_));
  }
  output_tokens_ += static_cast<std::uint32_t>(tokens);
  return {};
}

Result<> ResponseTranslator::make_finish(ResponseScratch& scratch, Finish& finish) const {
  const ::vllm::FinishInfo& info = scratch.message_->outputs().finish_info();
  switch (info.finish_reason()) {
    case ::vllm::FinishInfo::LENGTH: finish.reason = FinishReason::Length; break;
    case ::vllm::FinishInfo::STOP: finish.reason = FinishReason::Stop; break;
    case ::vllm::FinishInfo::ABORTED: finish.reason = FinishReason::Aborted; break;
    default:
      return protocol_error(
          fmt::format("finish_reason {}", static_cast<int>(info.finish_reason())));
  }
  if (info.num_output_tokens() != output_tokens_) {
    return protocol_error(fmt::format("the engine counts {} output tokens where {} arrived",
                                      info.num_output_tokens(), output_tokens_));
  }
  finish.output_tokens = output_tokens_;
  if (info.has_stop_token_id()) {
    finish.stop_token_id = info.stop_token_id();
  } else if (info.has_eos_token_id()) {
    finish.eos_token_id = info.eos_token_id();
  }
  if (info.has_num_cached_tokens()) {
    finish.cached_prompt_tokens = info.num_cached_tokens();
  }
  if (info.has_kv_transfer_params()) {
    finish.kv_transfer_params = from_struct(info.kv_transfer_params());
  }
  if (info.has_ec_transfer_params()) {
    finish.ec_transfer_params = from_struct(info.ec_transfer_params());
  }
  return {};
}

}  // namespace fairlead::engine::vllm_grpc
