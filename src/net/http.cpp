#include "net/http.hpp"

#include <algorithm>
#include <array>

#include "net/server_connection.hpp"

namespace fairlead::net::http {
namespace {

struct Phrase {
  int status;
  std::string_view text;
};

constexpr auto kPhrases = std::to_array<Phrase>({
    {100, "Continue"},
    {101, "Switching Protocols"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {206, "Partial Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {410, "Gone"},
    {411, "Length Required"},
    {412, "Precondition Failed"},
    {413, "Content Too Large"},
    {414, "URI Too Long"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {422, "Unprocessable Content"},
    {424, "Failed Dependency"},
    {425, "Too Early"},
    {426, "Upgrade Required"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {499, "Client Closed Request"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {502, "Bad Gateway"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
    {507, "Insufficient Storage"},
    {529, "Site is Overloaded"},
});

int hex_digit(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

bool percent_decode(std::string_view text, std::string& out) {
  out.clear();
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? hex_digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? hex_digit(text[i + 2]) : -1;
    if (high < 0 || low < 0 || (high == 0 && low == 0)) {
      return false;
    }
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return true;
}

bool starts_with_lower(std::string_view text, std::string_view lower) {
  if (text.size() < lower.size()) {
    return false;
  }
  for (std::size_t i = 0; i < lower.size(); ++i) {
    const char c = text[i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c) != lower[i]) {
      return false;
    }
  }
  return true;
}

// Cuts scheme and authority off an absolute form; false when there is no authority.
bool strip_authority(std::string_view& target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (starts_with_lower(target, scheme)) {
      target.remove_prefix(scheme.size());
      const std::size_t end = std::min(target.find_first_of("/?"), target.size());
      const std::string_view authority = target.substr(0, end);
      target.remove_prefix(end);
      return !authority.empty() && !authority.contains('@');
    }
  }
  return false;
}

}  // namespace

std::string_view reason_phrase(int status) {
  for (const Phrase& phrase : kPhrases) {
    if (phrase.status == status) {
      return phrase.text;
    }
  }
  return "Unknown";
}

std::string body_too_large_text(std::size_t limit_bytes) {
  return "the request body is larger than " + std::to_string(limit_bytes) + " bytes";
}

bool split_target(std::string_view target, Request& request) {
  request.query.clear();
  if (target == "*") {
    request.path = "*";
    return true;
  }
  if (target.contains('#')) {
    return false;
  }
  const bool origin_form = target.starts_with('/');
  if (!origin_form && !strip_authority(target)) {
    return false;
  }
  const std::size_t mark = target.find('?');
  if (mark != std::string_view::npos) {
    request.query = target.substr(mark + 1);
    target = target.substr(0, mark);
  }
  if (target.empty()) {
    request.path = "/";
    return true;
  }
  return percent_decode(target, request.path);
}

}  // namespace fairlead::net::http
