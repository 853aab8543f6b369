#include <fmt/format.h>

#include <chrono>
#include <iostream>

#include "chat/line_command.hpp"
#include "cli/command.hpp"
#include "cli/commands.hpp"
#include "cli/engine_list.hpp"
#include "fleet/engine_address.hpp"
#include "fleet/probe_command.hpp"
#include "tokenizer/line_command.hpp"

namespace fairlead::cli {

int run_probe(const Settings& settings) {
  if (settings.positional().size() != 1) {
    return report("probe",
                  {ErrorCode::InvalidRequest, "say which engine: `fairlead probe URL`", {}});
  }
  const auto backend = parse_backend("--direct-backend", settings.text("direct-backend"));
  if (!backend) {
    return report("probe", backend.error());
  }
  const auto timeout = std::chrono::duration_cast<net::Duration>(
      std::chrono::duration<double>(settings.number("timeout-secs")));
  const auto address = fleet::parse_engine_address(settings.positional().front());
  if (!address) {
    return report("probe", address.error());
  }
  const Result<std::string> answer =
      fleet::probe_engine(address->endpoint.url, address->backend.value_or(*backend), timeout);
  if (!answer) {
    return report("probe", answer.error());
  }
  fmt::print("{}\n", *answer);
  return kExitDone;
}

int run_tokenize(const Settings& settings) {
  if (settings.text("model").empty()) {
    return report("tokenize", {ErrorCode::InvalidRequest, "--model PATH is required", {}});
  }
  std::ios::sync_with_stdio(false);
  return tokenizer::run_tokenize(
      std::cin, std::cout, {.model = settings.text("model"), .decode = settings.flag("decode")});
}

int run_render(const Settings& settings) {
  std::ios::sync_with_stdio(false);
  return chat::run_render(std::cin, std::cout, {.model = settings.text("model")});
}

}  // namespace fairlead::cli
