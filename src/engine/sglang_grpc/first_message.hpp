#pragma once

#include <expected>
#include <string>
#include <string_view>

#include "net/grpc.hpp"
#include "net/task.hpp"

namespace fairlead::engine::sglang_grpc {

/// The first message of a stream that the server keeps open; the stream is reset behind it. A
/// stream without any is a status.
net::Task<std::expected<std::string, net::grpc::Status>> first_message(net::grpc::Channel& channel,
                                                                       std::string_view path,
                                                                       net::TimePoint deadline);

}  // namespace fairlead::engine::sglang_grpc
