#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <stop_token>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"

namespace fairlead::tokenizer {

class ComponentConfig;
class PieceStep;

/// The pre-tokenizer of the general path: cuts normalized text into pieces for the model, and
/// rewrites them, as any pre-tokenizer of the reference does. Immutable.
class GeneralPreTokenizer {
 public:
  /// Takes a piece, which is not empty and valid during the call only; a failure ends the work.
  using Sink = std::function<Result<>(std::string_view)>;

  /// From the `pre_tokenizer` member; null leaves the whole text as one piece. Anything that is not
  /// exactly supported is an error naming the component.
  static Result<GeneralPreTokenizer> create(const json::Value& config);

  /// Passes on the pieces of `text`, well-formed UTF-8, in order; no list of them is kept.
  /// `start_bytes` is how many bytes at the front of `text` stand for the first character of the
  /// input, as `Normalizer::apply` counts them; 0 when the text begins later in the input. Fails as
  /// the sink does, when a regex gives up and when the pieces are out of proportion to the text;
  /// `ClientGone` once `stop` is requested.
  Result<> split(std::string_view text, std::size_t start_bytes, const Sink& sink,
                 const std::stop_token& stop = {}) const;
  /// True when no character of a text vanishes.
  bool keeps_text() const;

 private:
  Result<> add(const ComponentConfig& config);

  std::vector<std::shared_ptr<const PieceStep>> steps_;
};

}  // namespace fairlead::tokenizer
