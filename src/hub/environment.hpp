#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

namespace fairlead::hub {

/// What the environment says about the hub, by the variables of Hugging Face's own tools.
struct Environment {
  std::filesystem::path cache;   ///< `HF_HUB_CACHE`, `HF_HOME`/hub, `XDG_CACHE_HOME`/….
  std::string endpoint;          ///< `HF_ENDPOINT`, without a slash at its end.
  std::string token;             ///< `HF_TOKEN` or the token file; empty = none.
  bool offline = false;          ///< `HF_HUB_OFFLINE` or `TRANSFORMERS_OFFLINE`.
  std::chrono::seconds silence;  ///< `HF_HUB_DOWNLOAD_TIMEOUT`: a connection may be silent so long.
  std::filesystem::path ca_file;    ///< `SSL_CERT_FILE` and kin; empty = the system's.
  std::filesystem::path ca_folder;  ///< `SSL_CERT_DIR`; empty = the system's.
};

/// The value of a variable, or nothing.
using Variables = std::function<std::optional<std::string>(const char* name)>;

/// Reads the variables; empty ones count as unset. Files: the token's only.
Environment read_environment(const Variables& variables);

/// Reads those of the process.
Environment read_environment();

}  // namespace fairlead::hub
