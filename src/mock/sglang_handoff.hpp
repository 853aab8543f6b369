#pragma once

#include <expected>
#include <string>
#include <string_view>

#include "mock/options.hpp"
#include "mock/sglang_output.hpp"
#include "mock/sglang_request.hpp"
#include "net/socket.hpp"
#include "net/task.hpp"

namespace fairlead::mock {

/// The decode half's side of a hand-off: finds the prefill engine's bootstrap server, announces the
/// room and waits for the first token. The error is the engine's text. Destroying the task takes
/// the announcement back.
net::Task<std::expected<FirstToken, std::string>> receive_first_token(net::Dialer& dialer,
                                                                      const BootstrapRoom& room,
                                                                      std::string_view rid,
                                                                      const MockOptions& options);

/// What a prefill half says that met nobody.
std::string bootstrap_timeout_text(const BootstrapRoom& room, std::string_view rid,
                                   const MockOptions& options);

}  // namespace fairlead::mock
