#include "api/openai/answer_hold.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace fairlead::api::openai {
namespace {

// The shared count is touched once for so much.
constexpr std::size_t kStep = std::size_t{64} * 1024;
// So much less than what is counted is given back.
constexpr std::size_t kSlack = 4 * kStep;

Error too_large(std::size_t limit, AnswerKind kind) {
  const double mib = static_cast<double>(limit) / (1024.0 * 1024);
  if (kind == AnswerKind::Stream) {
    return {ErrorCode::AnswerTooLarge,
            fmt::format("More than {:.4g} MiB of the answer wait for their text or their engines: "
                        "ask for fewer choices, tokens or candidates",
                        mib),
            {}};
  }
  if (kind == AnswerKind::Tokens) {
    return {ErrorCode::AnswerTooLarge,
            fmt::format("The answer is larger than {:.4g} MiB, the most for one "
                        "(--http-answer-limit-mb)",
                        mib),
            {}};
  }
  return {ErrorCode::AnswerTooLarge,
          fmt::format("The answer is larger than {:.4g} MiB, the most for one that is not "
                      "streamed: stream it, or ask for fewer choices, tokens or candidates",
                      mib),
          "stream"};
}

}  // namespace

AnswerHold::AnswerHold(const serving::ServiceOptions& options, AnswerKind kind)
    : limit_(options.answer_bytes),
      kind_(kind),
      budget_(options.answers),
      counted_(budget_ ? net::http::BodyShare::kFree : std::numeric_limits<std::size_t>::max()) {}

std::optional<Error> AnswerHold::count(std::size_t gathered, std::size_t bytes) {
  if (gathered > limit_) {
    return too_large(limit_, kind_);
  }
  if (!share_) {
    share_ = std::make_shared<net::http::BodyShare>(budget_);
  }
  counted_ = bytes <= net::http::BodyShare::kFree
                 ? net::http::BodyShare::kFree
                 : std::min((bytes / kStep + 1) * kStep, std::max(bytes, limit_));
  least_ = counted_ - std::min(counted_, kSlack);
  if (!share_->hold(counted_)) {
    return Error{ErrorCode::Overloaded,
                 "the answers that are gathered hold all they may together "
                 "(--http-answer-total-mb)",
                 {}};
  }
  return std::nullopt;
}

}  // namespace fairlead::api::openai
