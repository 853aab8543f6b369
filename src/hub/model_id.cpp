#include "hub/model_id.hpp"

#include <algorithm>

namespace fairlead::hub {
namespace {

constexpr std::size_t kMaxNameBytes = 96;
constexpr std::size_t kMaxRevisionBytes = 200;

bool is_alphanumeric(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/// Letters, digits, `-`, `_` and `.`, neither of `-` and `.` at an end, none doubled.
bool is_name_part(std::string_view part) {
  const auto is_edge = [](char c) { return is_alphanumeric(c) || c == '_'; };
  return !part.empty() && is_edge(part.front()) && is_edge(part.back()) &&
         part.find("--") == std::string_view::npos && part.find("..") == std::string_view::npos &&
         std::ranges::all_of(part, [&](char c) { return is_edge(c) || c == '-' || c == '.'; });
}

/// What Git allows for references, so that it is also a path below `refs`.
bool is_revision(std::string_view text) {
  if (text.empty() || text.size() > kMaxRevisionBytes ||
      text.find("..") != std::string_view::npos || text.find("@{") != std::string_view::npos) {
    return false;
  }
  constexpr std::string_view kForbidden = " ~^:?*[\\";
  if (!std::ranges::all_of(text, [&](char c) {
        return c > 0x20 && c < 0x7f && kForbidden.find(c) == std::string_view::npos;
      })) {
    return false;
  }
  while (true) {
    const std::size_t slash = text.find('/');
    const std::string_view part = text.substr(0, slash);
    if (part.empty() || part.front() == '.' || part.ends_with(".lock")) {
      return false;
    }
    if (slash == std::string_view::npos) {
      return true;
    }
    text.remove_prefix(slash + 1);
  }
}

}  // namespace

std::optional<ModelId> parse_model_id(std::string_view text) {
  const std::size_t at = text.find('@');
  const std::string_view name = text.substr(0, at);
  const std::string_view revision =
      at == std::string_view::npos ? kMainRevision : text.substr(at + 1);
  const std::size_t slash = name.find('/');
  const bool named = slash == std::string_view::npos ? is_name_part(name)
                                                     : is_name_part(name.substr(0, slash)) &&
                                                           is_name_part(name.substr(slash + 1));
  if (!named || name.size() > kMaxNameBytes || name.ends_with(".git") || !is_revision(revision)) {
    return std::nullopt;
  }
  return ModelId{.name = std::string(name), .revision = std::string(revision)};
}

std::string to_string(const ModelId& id) {
  return id.revision == kMainRevision ? id.name : id.name + '@' + id.revision;
}

std::string folder_name(const ModelId& id) {
  std::string folder = "models--" + id.name;
  if (const std::size_t slash = folder.find('/'); slash != std::string::npos) {
    folder.replace(slash, 1, "--");
  }
  return folder;
}

bool is_commit(std::string_view text) {
  return text.size() == 40 && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace fairlead::hub
