#include "engine/sglang_grpc/response.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "engine/sglang_grpc/finish.hpp"
#include "engine/sglang_grpc/lenient_json.hpp"
#include "engine/sglang_grpc/logprobs.hpp"
#include "engine/sglang_grpc/request.hpp"

namespace fairlead::engine::sglang_grpc {
namespace {

/// Messages above this size do not leave their memory behind.
constexpr std::size_t kKeptBytes = 256 * 1024;

}  // namespace

ResponseTranslator::ResponseTranslator(const GenerateRequest& request, Dialect::Output mode)
    : stop_token_ids_(request.stop.stop_token_ids),
      prompt_tokens_(static_cast<std::uint32_t>(request.prompt.size())),
      max_tokens_(max_new_tokens(request)),
      candidates_(request.output.logprobs.value_or(0)),
      prompt_candidates_(request.output.prompt_logprobs.value_or(0)),
      mode_(mode),
      wants_logprobs_(request.output.wants_logprobs()),
      wants_prompt_logprobs_(wants_prompt_logprobs(request)) {
  if (wants_prompt_logprobs_) {
    prompt_ = request.prompt;
  }
}

Result<> ResponseTranslator::feed(ResponseScratch& scratch, std::string_view bytes,
                                  TokenSink& sink) {
  if (finished_) {
    return {};
  }
  Result<> done = read_answer(bytes, scratch.answer);
  if (done) {
    done = feed_answer(scratch, sink);
  }
  if (bytes.size() > kKeptBytes) {
    scratch = {};
  }
  return done;
}

Result<> ResponseTranslator::feed_answer(ResponseScratch& scratch, TokenSink& sink) {
  const Answer& answer = scratch.answer;
  Finish finish;
  if (answer.finished) {
    // Of a generation that the engine ended by itself, nothing else means anything.
    if (Result<> read = read_finish(answer.finish_reason, stop_token_ids_, finish); !read) {
      finished_ = read.error().code != ErrorCode::EngineProtocol;
      return read;
    }
  }
  if (!prompt_told_ && (answer.finished || !answer.ids.empty() || !wants_prompt_logprobs_)) {
    if (Result<> told = tell_prompt(scratch, sink); !told) {
      return told;
    }
  }
  const auto ids = std::span<const TokenId>(answer.ids).subspan(first_new(answer));
  if (ids.size() > max_tokens_ - output_tokens_) {
    return fail(ErrorCode::EngineProtocol,
                fmt::format("Generate: more than the {} tokens that were asked for", max_tokens_));
  }
  output_tokens_ += static_cast<std::uint32_t>(ids.size());
  std::span<const TokenLogprob> logprobs;
  if (wants_logprobs_ && !ids.empty()) {
    const LogprobLists lists{answer.token_logprobs, answer.top_logprobs};
    if (Result<> read =
            read_output_logprobs(lists, ids, output_tokens_, candidates_, scratch.logprobs);
        !read) {
      return read;
    }
    logprobs = std::span(scratch.logprobs).first(ids.size());
  }
  if (answer.finished) {
    finished_ = true;
    finish.output_tokens = output_tokens_;
    finish.cached_prompt_tokens = to_count(answer.cached_tokens);
    sink.on_tokens({.ids = ids, .logprobs = logprobs, .finish = &finish});
  } else if (!ids.empty()) {
    sink.on_tokens({.ids = ids, .logprobs = logprobs, .finish = nullptr});
  }
  return {};
}

/// The prompt's length is what was sent: there is nothing in a prompt of ids that the engine could
/// count otherwise.
Result<> ResponseTranslator::tell_prompt(ResponseScratch& scratch, TokenSink& sink) {
  std::span<const TokenLogprob> logprobs;
  if (wants_prompt_logprobs_) {
    const LogprobLists lists{scratch.answer.input_logprobs, scratch.answer.input_top};
    if (Result<> read = read_prompt_logprobs(lists, prompt_, prompt_candidates_, scratch.logprobs);
        !read) {
      return read;
    }
    logprobs = std::span(scratch.logprobs).first(prompt_tokens_);
  }
  prompt_told_ = true;
  sink.on_prompt({.prompt_tokens = prompt_tokens_, .logprobs = logprobs});
  return {};
}

/// Where the new ids of a message begin. A cumulative list that is shorter than what came before
/// has none.
std::size_t ResponseTranslator::first_new(const Answer& answer) const {
  const std::size_t size = answer.ids.size();
  bool cumulative = mode_ != Dialect::Output::Incremental;
  if (const std::optional<std::uint32_t> total = to_count(answer.output_tokens)) {
    if (*total == size) {
      cumulative = true;
    } else if (*total == output_tokens_ + size) {
      cumulative = false;
    }
  }
  return cumulative ? std::min<std::size_t>(output_tokens_, size) : 0;
}

}  // namespace fairlead::engine::sglang_grpc
