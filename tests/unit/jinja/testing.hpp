#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "base/json.hpp"
#include "jinja/template.hpp"

namespace fairlead::jinja {

/// Renders `source` with a JSON context; an error gives `error: ` and its message.
inline std::string render(std::string source, std::string_view context = "{}",
                          const Template::Options& options = {}) {
  const auto parsed = Template::parse(std::move(source));
  if (!parsed) {
    return "error: " + parsed.error().message;
  }
  const auto document = json::parse(context);
  if (!document) {
    ADD_FAILURE() << "bad context: " << document.error().message;
    return {};
  }
  const auto out = (*parsed)->render(from_json(*document), options);
  return out ? *out : "error: " + out.error().message;
}

}  // namespace fairlead::jinja
