#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "net/body_budget.hpp"
#include "serving/service.hpp"

namespace fairlead::api::openai {

/// What an answer is, for the words of errors.
enum class AnswerKind : std::uint8_t {
  Document,  ///< A generation's, gathered.
  Stream,    ///< A generation's, with what cannot be sent yet.
  Tokens,    ///< Tokens or their text, without a generation.
};

/// What one answer holds: counted against its own bound and, in coarse steps, against that of all
/// answers together.
class AnswerHold {
 public:
  /// With the bounds of `options`.
  AnswerHold(const serving::ServiceOptions& options, AnswerKind kind);

  /// `gathered` bytes are held now, and `waiting` ones that were written and not taken yet, which
  /// count with all answers only. The error says why that is too much. It costs comparisons unless
  /// a step is passed.
  std::optional<Error> hold(std::size_t gathered, std::size_t waiting = 0) {
    const std::size_t bytes = gathered + waiting;
    if (gathered <= limit_ && bytes <= counted_ && bytes >= least_) [[likely]] {
      return std::nullopt;
    }
    return count(gathered, bytes);
  }
  /// Most bytes of the answer.
  std::size_t limit() const { return limit_; }
  /// Gives up what is counted to who keeps it until the client has taken the answer; may be null.
  std::shared_ptr<net::http::BodyShare> take_share() { return std::move(share_); }

 private:
  std::optional<Error> count(std::size_t gathered, std::size_t bytes);

  std::size_t limit_;
  AnswerKind kind_;
  std::shared_ptr<net::http::BodyBudget> budget_;  // null: no bound
  std::size_t counted_;                            // the bytes that the share stands for
  std::size_t least_ = 0;                          // below it some of them are given back
  std::shared_ptr<net::http::BodyShare> share_;    // null while little is held
};

}  // namespace fairlead::api::openai
