#pragma once

#include "jinja/evaluator.hpp"

namespace fairlead::jinja {

/// Collects output in a text of its own for as long as it lives. The waiting outer text counts as
/// memory in use.
class Evaluator::Capture {
 public:
  explicit Capture(Evaluator& evaluator) : evaluator_(evaluator), outer_(evaluator.out_) {
    counted_ = static_cast<std::int64_t>(outer_->capacity());
    live_bytes += counted_;
    evaluator_.out_ = &text_;
  }
  ~Capture() {
    evaluator_.out_ = outer_;
    live_bytes -= counted_;
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  /// The collected text as a value.
  Value take() { return evaluator_.runtime_.string(text_); }

 private:
  Evaluator& evaluator_;
  std::string* outer_;
  std::string text_;
  std::int64_t counted_ = 0;
};

/// Makes an activation the current one for as long as it lives.
class Evaluator::Enter {
 public:
  Enter(Evaluator& evaluator, Activation& activation)
      : evaluator_(evaluator), outer_(evaluator.current_) {
    evaluator_.current_ = &activation;
  }
  ~Enter() { evaluator_.current_ = outer_; }
  Enter(const Enter&) = delete;
  Enter& operator=(const Enter&) = delete;

 private:
  Evaluator& evaluator_;
  Activation* outer_;
};

}  // namespace fairlead::jinja
