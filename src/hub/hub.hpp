#pragma once

#include <filesystem>
#include <stop_token>
#include <string>

#include "base/error.hpp"

namespace fairlead::hub {

/// How a model is looked for.
struct LookUp {
  bool download = true;       ///< Whether what the cache does not have is fetched from the hub.
  std::stop_token stop = {};  ///< Ends a download early.
};

/// True for what names a model of the hub, `ORG/NAME[@REVISION]`, and no file or folder here.
bool is_hub_name(const std::string& path);

/// The place that a model path means: the file or folder of that name; else, for
/// `ORG/NAME[@REVISION]`, its snapshot in the local Hugging Face cache, which is filled with the
/// files of the text side (never weights) when they are not there. Errors are one line and wrong
/// usage. May take as long as the network does.
Result<std::filesystem::path> resolve_model(const std::string& path, const LookUp& look_up = {});

}  // namespace fairlead::hub
