#include "hub/url.hpp"

#include <curl/curl.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>

namespace fairlead::hub {
namespace {

struct FreeUrl {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using Url = std::unique_ptr<CURLU, FreeUrl>;

std::optional<std::string> part(const Url& url, CURLUPart which, unsigned int flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url.get(), which, &text, flags) != CURLUE_OK) {
    return std::nullopt;
  }
  std::string out(text);
  curl_free(text);
  return out;
}

Url parse(const std::string& text) {
  Url url(curl_url());
  if (!url || curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) {
    return nullptr;
  }
  return url;
}

bool is_web(const Url& url) {
  const std::optional<std::string> scheme = part(url, CURLUPART_SCHEME);
  return scheme && (*scheme == "http" || *scheme == "https");
}

}  // namespace

std::optional<std::string> origin_of(const std::string& url) {
  const Url parsed = parse(url);
  if (!parsed || !is_web(parsed)) {
    return std::nullopt;
  }
  const auto scheme = part(parsed, CURLUPART_SCHEME);
  auto host = part(parsed, CURLUPART_HOST);
  const auto port = part(parsed, CURLUPART_PORT, CURLU_DEFAULT_PORT);
  if (!scheme || !host || !port) {
    return std::nullopt;
  }
  std::ranges::transform(*host, host->begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return fmt::format("{}://{}:{}", *scheme, *host, *port);
}

std::optional<std::string> follow(const std::string& url, const std::string& location) {
  const Url parsed = parse(url);
  const bool secure = parsed && part(parsed, CURLUPART_SCHEME) == "https";
  if (!parsed ||
      curl_url_set(parsed.get(), CURLUPART_URL, location.c_str(), CURLU_URLENCODE) != CURLUE_OK ||
      !is_web(parsed) || (secure && part(parsed, CURLUPART_SCHEME) != "https")) {
    return std::nullopt;
  }
  return part(parsed, CURLUPART_URL);
}

std::string quote(std::string_view text, std::string_view keep) {
  std::string out;
  for (const char c : text) {
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
        c == '.' || c == '_' || c == '~' || keep.find(c) != std::string_view::npos) {
      out.push_back(c);
    } else {
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    }
  }
  return out;
}

}  // namespace fairlead::hub
