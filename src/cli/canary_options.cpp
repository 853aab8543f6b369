#include "cli/canary_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "cli/command.hpp"

namespace fairlead::cli {
namespace {

constexpr std::string_view kPayload = "health-check-payload";

net::Duration seconds_of(const Settings& settings, std::string_view name) {
  return std::chrono::duration_cast<net::Duration>(
      std::chrono::duration<double>(settings.number(name)));
}

/// The model's name in front of `=JSON` or `=@FILE`; empty when the text is for all models.
std::string_view model_of(std::string_view text) {
  if (text.starts_with('{') || text.starts_with('@')) {
    return {};
  }
  const std::size_t end = std::min(text.find("={"), text.find("=@"));
  return end == std::string_view::npos ? std::string_view() : text.substr(0, end);
}

Result<> add_payload(std::string_view text, std::set<std::string>& models,
                     fleet::CanaryOptions& out) {
  const std::string model(model_of(text));
  if (!models.insert(model).second) {
    return fail(ErrorCode::InvalidRequest, model.empty()
                                               ? "two payloads are for all models"
                                               : fmt::format("model `{}` is named twice", model));
  }
  text.remove_prefix(model.empty() ? 0 : model.size() + 1);
  std::string content(text);
  if (text.starts_with('@')) {
    Result<std::string> file = read_file(content.substr(1));
    if (!file) {
      return std::unexpected(std::move(file.error()));
    }
    content = std::move(*file);
  }
  Result<fleet::CanaryPayload> payload = fleet::parse_canary_payload(content);
  if (!payload) {
    return std::unexpected(std::move(payload.error()));
  }
  (model.empty() ? out.payload : out.per_model[model]) = std::move(*payload);
  return {};
}

}  // namespace

Result<fleet::CanaryOptions> canary_options(const Settings& settings) {
  fleet::CanaryOptions out;
  out.enabled = settings.flag("health-check");
  out.wait = seconds_of(settings, "canary-wait-secs");
  out.timeout = seconds_of(settings, "health-check-request-timeout-secs");
  out.busy_stall = seconds_of(settings, "health-check-busy-stall-secs");
  std::set<std::string> models;
  for (const std::string& text : settings.list(kPayload)) {
    if (const Result<> added = add_payload(text, models, out); !added) {
      return fail(ErrorCode::InvalidRequest,
                  fmt::format("{}: {}", settings.origin(kPayload), added.error().message));
    }
  }
  return out;
}

}  // namespace fairlead::cli
