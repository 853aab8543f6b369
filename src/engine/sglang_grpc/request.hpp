#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "engine/request.hpp"
#include "engine/sglang_grpc/dialect.hpp"

namespace fairlead::engine::sglang_grpc {

/// What an engine is asked to do of a request on its leg: a prefill ends with its one token, which
/// comes whatever the stop conditions are.
std::uint32_t max_new_tokens(const GenerateRequest& request);

/// True when the answer must have the prompt's log-probabilities. A decode engine has none: they
/// are those of the prefill.
bool wants_prompt_logprobs(const GenerateRequest& request);

/// Writes `sglang.runtime.v1.GenerateRequest` messages, reusing its buffers. Every sampling value
/// is explicit, since what is absent would be filled from the model's `generation_config.json`
/// (`--sampling-defaults model`). The engine is asked for token ids only: no text, no stop strings.
class RequestWriter {
 public:
  RequestWriter();
  ~RequestWriter();
  RequestWriter(const RequestWriter&) = delete;
  RequestWriter& operator=(const RequestWriter&) = delete;

  /// The serialized message, valid until the next call. What the interface or this engine cannot
  /// express is refused with UnsupportedField, naming the field, unless it has no effect; bad
  /// values are InvalidRequest.
  Result<std::string_view> write(const GenerateRequest& request, const Dialect& dialect);
  /// Gives back what a long prompt needed; ends the validity of the last message.
  void trim();

 private:
  struct Message;
  std::unique_ptr<Message> message_;
  std::string bytes_;
};

}  // namespace fairlead::engine::sglang_grpc
