#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/error.hpp"
#include "engine/request.hpp"
#include "engine/vllm_grpc/dialect.hpp"
#include "net/grpc.hpp"

namespace fairlead::engine::vllm_grpc {

/// Writes `vllm.GenerateRequest` messages, reusing its buffers. Every value is explicit, since what
/// is absent would be filled from the model's defaults (or, for the temperature, be greedy). The
/// engine is asked for token ids only: no text, no stop strings.
class RequestWriter {
 public:
  RequestWriter();
  ~RequestWriter();
  RequestWriter(const RequestWriter&) = delete;
  RequestWriter& operator=(const RequestWriter&) = delete;

  /// The serialized message, valid until the next call. `model` is the served name; empty means the
  /// primary. What the dialect cannot express is refused with UnsupportedField, naming the field,
  /// unless it has no effect; bad values are InvalidRequest.
  Result<std::string_view> write(const GenerateRequest& request, Dialect dialect,
                                 std::string_view model);
  /// Gives back what a long prompt needed; ends the validity of the last message.
  void trim();

 private:
  struct Message;
  std::unique_ptr<Message> message_;
  std::string bytes_;
};

/// The call's metadata: the data-parallel rank, when one is chosen.
net::grpc::Metadata request_metadata(const GenerateRequest& request);

}  // namespace fairlead::engine::vllm_grpc
