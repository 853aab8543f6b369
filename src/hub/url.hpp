#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fairlead::hub {

/// `SCHEME://HOST:PORT` of an http or https URL, in lower case and with the port always there;
/// nothing for other things.
std::optional<std::string> origin_of(const std::string& url);

/// Where a redirection leads from `url`; nothing when that is no http or https URL, or leaves
/// https.
std::optional<std::string> follow(const std::string& url, const std::string& location);

/// Percent-encodes everything but letters, digits, `-`, `.`, `_`, `~` and what `keep` has.
std::string quote(std::string_view text, std::string_view keep = {});

}  // namespace fairlead::hub
