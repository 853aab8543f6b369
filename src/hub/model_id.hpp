#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace fairlead::hub {

/// A model of the hub at a revision.
struct ModelId {
  std::string name;      ///< `ORG/NAME`, or `NAME` alone for the oldest ones.
  std::string revision;  ///< Branch, tag or commit.

  bool operator==(const ModelId& other) const = default;
};

/// What is taken when no revision is named.
inline constexpr std::string_view kMainRevision = "main";

/// Reads `ORG/NAME[@REVISION]`; nothing when it is not one the hub would allow.
std::optional<ModelId> parse_model_id(std::string_view text);

/// As it is written.
std::string to_string(const ModelId& id);

/// The model's folder in the cache: `models--ORG--NAME`.
std::string folder_name(const ModelId& id);

/// True for the full hash of a commit.
bool is_commit(std::string_view text);

}  // namespace fairlead::hub
