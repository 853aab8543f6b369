#pragma once

#include <cstddef>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "base/json.hpp"
#include "tokenizer/normalization.hpp"

namespace fairlead::tokenizer {

class ComponentConfig;
class NormalizerStep;

/// The normalizer of a tokenizer: steps in order, as the reference runs them on text. Immutable.
class Normalizer {
 public:
  /// From the `normalizer` member; null is none. Anything that is not exactly supported is an error
  /// naming the component.
  static Result<Normalizer> create(const json::Value& config);

  /// Whether it does nothing.
  bool empty() const { return steps_.empty(); }
  /// Whether it is form C and nothing else.
  bool nfc_only() const { return nfc_only_; }

  /// So many characters of a text may become one; 0 when some may become nothing.
  std::size_t shrinks() const;

  /// Replaces `text`, well-formed UTF-8, by its normalized form. Fails when a regex gives up or the
  /// result is out of proportion; `ClientGone` once `stop` is requested.
  Result<> apply(std::string& text, const std::stop_token& stop = {}) const;

  /// The same, and keeps count of the bytes at the front that stand for the first character of the
  /// text: `start_bytes` is set to 0 when a normalizer removed it. What begins beyond them is not
  /// at the start of the input for `Metaspace` with `first`.
  Result<> apply(std::string& text, std::size_t& start_bytes, const std::stop_token& stop) const;

 private:
  Result<> add(const ComponentConfig& config);

  std::vector<std::shared_ptr<const NormalizerStep>> steps_;
  bool nfc_only_ = false;
};

}  // namespace fairlead::tokenizer
