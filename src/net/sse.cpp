#include <algorithm>
#include <utility>

#include "net/http_client.hpp"

namespace fairlead::net::http {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
// A buffer for cut lines that grew beyond this is not kept.
constexpr std::size_t kKeptBuffer = 4096;

// Position of the first CR or LF, or the size. Looks at windows, so that text with one kind of line
// end is not searched to its end for the other kind.
std::size_t find_line_end(std::string_view text) {
  constexpr std::size_t kWindow = 512;
  for (std::size_t start = 0; start < text.size(); start += kWindow) {
    const std::string_view window = text.substr(start, kWindow);
    const std::size_t lf = std::min(window.find('\n'), window.size());
    const std::size_t end = std::min(window.substr(0, lf).find('\r'), lf);
    if (end < window.size()) {
      return start + end;
    }
  }
  return text.size();
}

}  // namespace

SseReader::SseReader(std::size_t max_event_bytes) : max_event_bytes_(max_event_bytes) {}

bool SseReader::feed(
    std::string_view bytes,
    const std::function<void(std::string_view event, std::string_view data)>& on_event) {
  while (!failed_ && !bytes.empty()) {
    if (skip_lf_) {
      skip_lf_ = false;
      if (bytes.front() == '\n') {
        bytes.remove_prefix(1);
        continue;
      }
    }
    const std::size_t end = find_line_end(bytes);
    if (event_bytes_ + buffer_.size() + end > max_event_bytes_) {
      failed_ = true;
      buffer_ = data_ = std::string();
      break;
    }
    if (end == bytes.size()) {
      buffer_.append(bytes);
      break;
    }
    skip_lf_ = bytes[end] == '\r';
    if (buffer_.empty()) {
      line(bytes.substr(0, end), on_event);
    } else {
      buffer_.append(bytes.substr(0, end));
      line(buffer_, on_event);
      if (buffer_.capacity() > kKeptBuffer) {
        buffer_ = std::string();
      } else {
        buffer_.clear();
      }
    }
    bytes.remove_prefix(end + 1);
  }
  return !failed_;
}

void SseReader::line(
    std::string_view text,
    const std::function<void(std::string_view event, std::string_view data)>& on_event) {
  if (std::exchange(at_start_, false) && text.starts_with(kByteOrderMark)) {
    text.remove_prefix(kByteOrderMark.size());
  }
  if (text.empty()) {
    if (has_data_) {
      on_event(event_.empty() ? std::string_view("message") : event_, data_);
    }
    event_.clear();
    data_.clear();
    has_data_ = false;
    event_bytes_ = 0;
    return;
  }
  const std::size_t colon = std::min(text.find(':'), text.size());
  const std::string_view field = text.substr(0, colon);
  std::string_view value = text.substr(std::min(colon + 1, text.size()));
  if (value.starts_with(' ')) {
    value.remove_prefix(1);
  }
  if (field == "data") {
    if (has_data_) {
      data_ += '\n';
    }
    data_.append(value);
    has_data_ = true;
    event_bytes_ += text.size();
  } else if (field == "event") {
    event_ = value;
  }
}

}  // namespace fairlead::net::http
