#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/error.hpp"
#include "cli/settings.hpp"
#include "engine/client.hpp"
#include "fleet/discovery/card_folder.hpp"
#include "fleet/flag_cards.hpp"

namespace fairlead::cli {

/// The backend of a name; errors begin with `origin`.
Result<engine::Backend> parse_backend(std::string_view origin, std::string_view name);

/// Where `serve` gets its engines from.
struct EngineSelection {
  std::vector<fleet::NamedEngine> engines;          ///< Named by flags; not prefill engines.
  std::vector<fleet::NamedEngine> prefill_engines;  ///< Named by flags.
  std::optional<fleet::CardFolderOptions> folder;   ///< Of cards, when there is one.
};

/// Reads what the flags say about engines. Errors are wrong usage: engines without `--direct` and
/// the reverse, prefill engines alone, an unknown backend, a malformed URL, a URL named twice,
/// discovery without its folder and the reverse, no engines at all.
Result<EngineSelection> select_engines(const Settings& settings);

}  // namespace fairlead::cli
