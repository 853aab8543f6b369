#pragma once

#include <chrono>
#include <cstdint>
#include <expected>
#include <filesystem>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.hpp"

namespace fairlead::hub {

/// The head of an answer.
struct Head {
  long status = 0;                                           ///< As sent.
  std::vector<std::pair<std::string, std::string>> headers;  ///< Names in lower case.

  /// The last value of a header, by its lower-case name, or null.
  const std::string* find(std::string_view name) const;
};

/// Why an exchange came to nothing.
struct Failure {
  std::string message;                ///< One line.
  bool again = false;                 ///< It may go better the next time.
  std::chrono::milliseconds pause{};  ///< What the server asks to wait before that.
};

/// The outcome of one try.
template <class T = void>
using Try = std::expected<T, Failure>;

/// Takes a piece of an answer's body; a failure ends the exchange with it.
using TakeBody = std::function<Try<>(const Head& head, std::string_view bytes)>;

/// How to reach servers.
struct HttpOptions {
  std::chrono::seconds silence;     ///< A server may be silent or crawl for so long.
  std::filesystem::path ca_file;    ///< Empty = the system's.
  std::filesystem::path ca_folder;  ///< Likewise.
  std::stop_token stop;             ///< Ends what runs.
};

/// Speaks HTTP and HTTPS by libcurl, one exchange at a time; follows no redirection. Proxies are
/// those of the environment.
class HttpClient {
 public:
  /// Nothing is sent yet.
  explicit HttpClient(HttpOptions options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// GETs, or without `take` HEADs, the URL. `headers` are whole lines.
  Try<Head> exchange(const std::string& url, const std::vector<std::string>& headers,
                     const TakeBody& take);

 private:
  struct Handles;

  HttpOptions options_;
  std::unique_ptr<Handles> handles_;
};

}  // namespace fairlead::hub
