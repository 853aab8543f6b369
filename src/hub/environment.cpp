#include "hub/environment.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <string_view>

namespace fairlead::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEndpoint = "https://huggingface.co";
constexpr std::chrono::seconds kSilence(30);
constexpr int kMaxSilenceSeconds = 3600;
// Longer ones are no tokens.
constexpr std::size_t kMaxTokenBytes = 4096;

class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  /// The first one that is set.
  std::string first(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      if (std::optional<std::string> value = variables_(name); value && !value->empty()) {
        return std::move(*value);
      }
    }
    return {};
  }

  bool flag(std::initializer_list<const char*> names) const {
    std::string value = first(names);
    std::ranges::transform(value, value.begin(), [](char c) {
      return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    });
    constexpr std::array<std::string_view, 4> kTrue{"1", "ON", "YES", "TRUE"};
    return std::ranges::find(kTrue, value) != kTrue.end();
  }

  /// A path whose `~` is the home folder.
  fs::path path(std::string text) const {
    if (text == "~" || text.starts_with("~/")) {
      text.replace(0, 1, first({"HOME"}));
    }
    return text;
  }

 private:
  const Variables& variables_;
};

std::string trimmed(const std::string& text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string::npos) {
    return {};
  }
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

std::string read_token(const fs::path& file) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) {  // a pipe must not block
    return {};
  }
  std::string text(kMaxTokenBytes, '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(in.gcount()));
  return trimmed(text);
}

fs::path home_of(const Reader& reader) {
  if (const std::string home = reader.first({"HF_HOME"}); !home.empty()) {
    return reader.path(home);
  }
  const std::string xdg = reader.first({"XDG_CACHE_HOME"});
  return reader.path(xdg.empty() ? "~/.cache" : xdg) / "huggingface";
}

std::string token_of(const Reader& reader, const fs::path& home) {
  if (reader.flag({"HF_HUB_DISABLE_IMPLICIT_TOKEN"})) {
    return {};
  }
  std::string token = trimmed(reader.first({"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}));
  if (token.empty()) {
    const std::string file = reader.first({"HF_TOKEN_PATH"});
    token = read_token(file.empty() ? home / "token" : reader.path(file));
  }
  return token;
}

std::chrono::seconds silence_of(const Reader& reader) {
  const std::string text = reader.first({"HF_HUB_DOWNLOAD_TIMEOUT"});
  int seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  const bool valid = error == std::errc() && end == text.data() + text.size() && seconds > 0;
  return valid ? std::chrono::seconds(std::min(seconds, kMaxSilenceSeconds)) : kSilence;
}

}  // namespace

Environment read_environment(const Variables& variables) {
  const Reader reader(variables);
  const fs::path home = home_of(reader);
  const std::string cache = reader.first({"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"});
  Environment out{
      .cache = cache.empty() ? home / "hub" : reader.path(cache),
      .endpoint = reader.first({"HF_ENDPOINT"}),
      .token = token_of(reader, home),
      .offline = reader.flag({"HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"}),
      .silence = silence_of(reader),
      .ca_file = reader.first({"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"}),
      .ca_folder = reader.first({"SSL_CERT_DIR"})};
  if (out.endpoint.empty()) {
    out.endpoint = kEndpoint;
  }
  while (out.endpoint.ends_with('/')) {
    out.endpoint.pop_back();
  }
  return out;
}

Environment read_environment() {
  return read_environment([](const char* name) {
    const char* value = std::getenv(name);
    return value ? std::optional<std::string>(value) : std::nullopt;
  });
}

}  // namespace fairlead::hub
