#include "net/grpc_wire.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace fairlead::net::grpc {
namespace {

// A buffer that grew beyond this is given back after its message.
constexpr std::size_t kKeptBytes = 64 * 1024;
// Taken at once for a message that arrives in pieces; more only as bytes really come.
constexpr std::size_t kReserveBytes = 256 * 1024;

constexpr std::array<std::string_view, 17> kNames = {
    "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED"};

constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int hex_value(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

std::uint32_t big_endian(const char* bytes) {
  std::uint32_t value = 0;
  for (int i = 0; i < 4; ++i) {
    value = value << 8 | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

}  // namespace

std::string_view status_name(StatusCode code) {
  const auto index = static_cast<std::size_t>(code);
  return index < kNames.size() ? kNames[index] : kNames[2];
}

void append_message(std::string& out, std::string_view message) {
  const auto size = static_cast<std::uint32_t>(message.size());
  const char prefix[kPrefixBytes] = {0, static_cast<char>(size >> 24),
                                     static_cast<char>(size >> 16), static_cast<char>(size >> 8),
                                     static_cast<char>(size)};
  out.append(prefix, kPrefixBytes);
  out.append(message);
}

bool MessageReader::take_prefix(std::string_view& input) {
  const std::size_t count = std::min(kPrefixBytes - prefix_size_, input.size());
  input.copy(prefix_ + prefix_size_, count);
  input.remove_prefix(count);
  prefix_size_ += count;
  if (prefix_size_ < kPrefixBytes) {
    return false;
  }
  length_ = big_endian(prefix_ + 1);
  return true;
}

MessageReader::Status MessageReader::next(std::string_view& input, std::string_view& message) {
  if (delivered_) {
    delivered_ = false;
    if (buffer_.capacity() > kKeptBytes) {
      std::string().swap(buffer_);
    }
    buffer_.clear();
  }
  if (prefix_size_ < kPrefixBytes && !take_prefix(input)) {
    return Status::NeedMore;
  }
  if (prefix_[0] != 0) {
    return Status::Compressed;
  }
  if (length_ > max_message_bytes_) {
    return Status::TooLarge;
  }
  if (buffer_.empty() && input.size() >= length_) {
    message = input.substr(0, length_);
    input.remove_prefix(length_);
    prefix_size_ = 0;
    return Status::Message;
  }
  if (buffer_.empty()) {
    buffer_.reserve(std::min<std::size_t>(length_, kReserveBytes));
  }
  const std::size_t count = std::min<std::size_t>(length_ - buffer_.size(), input.size());
  buffer_.append(input.substr(0, count));
  input.remove_prefix(count);
  if (buffer_.size() < length_) {
    return Status::NeedMore;
  }
  message = buffer_;
  delivered_ = true;
  prefix_size_ = 0;
  return Status::Message;
}

std::string percent_encode(std::string_view text) {
  constexpr std::string_view kHex = "0123456789ABCDEF";
  std::string out;
  out.reserve(text.size());
  for (const char c : text) {
    if (c >= ' ' && c <= '~' && c != '%') {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

std::string percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      const int high = hex_value(text[i + 1]);
      const int low = hex_value(text[i + 2]);
      if (high >= 0 && low >= 0) {
        out += static_cast<char>(high * 16 + low);
        i += 2;
        continue;
      }
    }
    out += text[i];
  }
  return out;
}

std::string base64_encode(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() * 4 + 2) / 3);
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : bytes) {
    bits = bits << 8 | static_cast<unsigned char>(c);
    count += 8;
    while (count >= 6) {
      count -= 6;
      out += kBase64[bits >> count & 63];
    }
  }
  if (count > 0) {
    out += kBase64[bits << (6 - count) & 63];
  }
  return out;
}

std::optional<std::string> base64_decode(std::string_view text) {
  while (!text.empty() && text.back() == '=') {
    text.remove_suffix(1);
  }
  if (text.size() % 4 == 1) {
    return std::nullopt;
  }
  std::string out;
  out.reserve(text.size() * 3 / 4);
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::size_t value = kBase64.find(c);
    if (value == std::string_view::npos) {
      return std::nullopt;
    }
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += static_cast<char>(bits >> count);
    }
  }
  return out;
}

std::string format_timeout(Duration timeout) {
  constexpr std::int64_t kMost = 99'999'999;
  using std::chrono::ceil;
  const Duration positive = std::max(timeout, Duration(1));
  if (const auto ms = ceil<std::chrono::milliseconds>(positive).count(); ms <= kMost) {
    return fmt::format("{}m", ms);
  }
  if (const auto s = ceil<std::chrono::seconds>(positive).count(); s <= kMost) {
    return fmt::format("{}S", s);
  }
  return fmt::format("{}H",
                     std::min<std::int64_t>(ceil<std::chrono::hours>(positive).count(), kMost));
}

std::optional<Duration> parse_timeout(std::string_view text) {
  if (text.size() < 2 || text.size() > 9) {
    return std::nullopt;
  }
  std::int64_t value = 0;
  const char* const end = text.data() + text.size() - 1;
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || value < 0) {
    return std::nullopt;
  }
  // Longer waits than this do not end within the life of the process, and must not overflow.
  constexpr auto kLongest = std::chrono::hours(24 * 365);
  const auto bounded = [&](auto unit) -> Duration {
    return value > std::chrono::duration_cast<decltype(unit)>(kLongest).count()
               ? Duration(kLongest)
               : std::chrono::ceil<Duration>(unit * value);
  };
  switch (text.back()) {
    case 'H': return bounded(std::chrono::hours(1));
    case 'M': return bounded(std::chrono::minutes(1));
    case 'S': return bounded(std::chrono::seconds(1));
    case 'm': return bounded(std::chrono::milliseconds(1));
    case 'u': return bounded(std::chrono::microseconds(1));
    case 'n': return bounded(std::chrono::nanoseconds(1));
    default: return std::nullopt;
  }
}

StatusCode status_of_http(int status) {
  switch (status) {
    case 400: return StatusCode::Internal;
    case 401: return StatusCode::Unauthenticated;
    case 403: return StatusCode::PermissionDenied;
    case 404: return StatusCode::Unimplemented;
    case 429:
    case 502:
    case 503:
    case 504: return StatusCode::Unavailable;
    default: return StatusCode::Unknown;
  }
}

StatusCode status_of_reset(http2::ErrorCode code) {
  switch (code) {
    case http2::ErrorCode::RefusedStream: return StatusCode::Unavailable;
    case http2::ErrorCode::Cancel: return StatusCode::Cancelled;
    case http2::ErrorCode::EnhanceYourCalm: return StatusCode::ResourceExhausted;
    case http2::ErrorCode::InadequateSecurity: return StatusCode::PermissionDenied;
    default: return StatusCode::Internal;
  }
}

StatusCode parse_status(std::string_view text) {
  unsigned value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value >= kNames.size()) {
    return StatusCode::Unknown;
  }
  return static_cast<StatusCode>(value);
}

bool is_grpc_content_type(std::string_view value) {
  constexpr std::string_view kType = "application/grpc";
  return value.starts_with(kType) &&
         (value.size() == kType.size() || value[kType.size()] == '+' || value[kType.size()] == ';');
}

std::string too_large_text(std::uint64_t found, std::uint64_t limit) {
  return fmt::format(
      "Error, decoded message length too large: found {} bytes, the limit is: {} bytes", found,
      limit);
}

}  // namespace fairlead::net::grpc
