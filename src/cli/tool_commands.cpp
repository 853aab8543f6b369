#include <fmt/format.h>

#include <chrono>
#include <iostream>

#include "chat/line_command.hpp"
#include "cli/command.hpp"
#include "cli/commands.hpp"
#include "cli/engine_list.hpp"
#include "fleet/engine_address.hpp"
#include "fleet/probe_command.hpp"
#include "hub/hub.hpp"
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
  const auto model = hub::resolve_model(settings.text("model"));
  if (!model) {
    return report("tokenize", model.error());
  }
  std::ios::sync_with_stdio(false);
  return tokenizer::run_tokenize(std::cin, std::cout,
                                 {.model = *model, .decode = settings.flag("decode")});
}

int run_render(const Settings& settings) {
  std::string folder;
  if (const std::string& model = settings.text("model"); !model.empty()) {
    const auto found = hub::resolve_model(model);
    if (!found) {
      return report("render", found.error());
    }
    folder = found->string();
  }
  std::ios::sync_with_stdio(false);
  return chat::run_render(std::cin, std::cout, {.model = folder});
}

}  // namespace fairlead::cli
