#include "loadgen/connection.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "base/json.hpp"

namespace fairlead::loadgen {
namespace {

// The value of the first string member `key`, unescaped. Enough for the generated chunks; anything
// with other escapes goes through the JSON parser.
bool find_string(std::string_view json, std::string_view key, std::string& out) {
  const std::size_t at = json.find(key);
  if (at == std::string_view::npos) {
    return false;
  }
  std::size_t i = at + key.size();
  while (i < json.size() && json[i] != '"') {
    if (json[i] != '\\') {
      out.push_back(json[i++]);
      continue;
    }
    const std::size_t start = at + key.size();
    std::size_t end = start;
    while (end < json.size() && json[end] != '"') {
      end += json[end] == '\\' ? 2 : 1;
    }
    const auto value = json::parse(fmt::format("[\"{}\"]", json.substr(start, end - start)));
    if (!value) {
      return false;
    }
    out.resize(out.size() - (i - start));
    out += *value->as_array()->front().as_string();
    return true;
  }
  return true;
}

}  // namespace

Connection::Connection(std::unique_ptr<net::Stream> stream, bool sse, OnDone on_done)
    : stream_(std::move(stream)), sse_(sse), on_done_(std::move(on_done)) {
  stream_->set_handler(this);
}

void Connection::send(const std::string& bytes) {
  running_ = true;
  in_head_ = true;
  done_seen_ = finish_seen_ = false;
  body_.clear();
  outcome_ = {};
  outcome_.sent = net::Clock::now();
  output_ = bytes;
  written_ = 0;
  write_some();
}

void Connection::write_some() {
  while (written_ < output_.size()) {
    const iovec piece{output_.data() + written_, output_.size() - written_};
    const net::IoResult result = stream_->write({&piece, 1});
    if (result.status != net::IoResult::Status::Ok) {
      if (result.status == net::IoResult::Status::Failed) {
        finish("write failed");
      }
      return;
    }
    written_ += result.bytes;
  }
}

void Connection::on_readable() {
  static thread_local std::array<char, 256 * 1024> buffer;
  while (usable_) {
    const net::IoResult result = stream_->read(buffer);
    if (result.status == net::IoResult::Status::WouldBlock) {
      return;
    }
    if (result.status != net::IoResult::Status::Ok) {
      usable_ = false;
      if (running_) {
        finish("connection closed");
      }
      return;
    }
    input_.append(buffer.data(), result.bytes);
    parse();
  }
}

void Connection::parse() {
  while (running_ && (in_head_ ? parse_head() : parse_body())) {
  }
  input_.erase(0, pos_);
  pos_ = 0;
}

bool Connection::parse_head() {
  const std::size_t end = input_.find("\r\n\r\n", pos_);
  if (end == std::string::npos) {
    return false;
  }
  const std::string_view head = std::string_view(input_).substr(pos_, end - pos_);
  status_ = 0;
  std::from_chars(head.data() + 9, head.data() + 12, status_);
  chunked_ = head.find("hunked") != std::string_view::npos;
  remaining_ = 0;
  for (const std::string_view name : {"\r\nContent-Length: ", "\r\ncontent-length: "}) {
    if (const std::size_t at = head.find(name); at != std::string_view::npos) {
      std::from_chars(head.data() + at + name.size(), head.data() + head.size(), remaining_);
    }
  }
  if (head.find("onnection: close") != std::string_view::npos) {
    usable_ = false;
  }
  pos_ = end + 4;
  in_head_ = false;
  in_chunk_ = false;
  return true;
}

bool Connection::parse_body() {
  if (chunked_ && !in_chunk_) {
    const std::size_t end = input_.find("\r\n", pos_);
    if (end == std::string::npos) {
      return false;
    }
    remaining_ = 0;
    std::from_chars(input_.data() + pos_, input_.data() + end, remaining_, 16);
    if (remaining_ == 0) {
      if (input_.size() < end + 4) {
        return false;
      }
      pos_ = end + 4;
      finish({});
      return false;
    }
    pos_ = end + 2;
    in_chunk_ = true;
  }
  const std::size_t count = std::min(remaining_, input_.size() - pos_);
  take_body(std::string_view(input_).substr(pos_, count));
  pos_ += count;
  remaining_ -= count;
  if (remaining_ > 0) {
    return false;
  }
  if (!chunked_) {
    finish({});
    return false;
  }
  if (input_.size() - pos_ < 2) {
    return false;
  }
  pos_ += 2;
  in_chunk_ = false;
  return true;
}

void Connection::take_body(std::string_view bytes) {
  body_ += bytes;
  if (!sse_ || status_ != 200) {
    return;
  }
  std::size_t start = 0;
  for (std::size_t end = body_.find("\n\n"); end != std::string::npos;
       end = body_.find("\n\n", start)) {
    const std::string_view event = std::string_view(body_).substr(start, end - start);
    if (event.starts_with("data: ")) {
      take_event(event.substr(6));
    }
    start = end + 2;
  }
  body_.erase(0, start);
}

void Connection::take_event(std::string_view data) {
  if (data == "[DONE]") {
    done_seen_ = true;
    return;
  }
  if (data.starts_with("{\"error\"")) {
    outcome_.problem = std::string(data.substr(0, 200));
    return;
  }
  finish_seen_ = finish_seen_ || data.find("\"finish_reason\":\"") != std::string_view::npos;
  const std::size_t before = outcome_.text.size();
  if (!find_string(data, "\"content\":\"", outcome_.text)) {
    find_string(data, "\"text\":\"", outcome_.text);
  }
  if (outcome_.text.size() == before) {
    return;
  }
  const net::TimePoint now = net::Clock::now();
  if (outcome_.chunks++ == 0) {
    outcome_.first = now;
  } else {
    outcome_.gaps_ms.push_back(std::chrono::duration<float, std::milli>(now - last_).count());
  }
  last_ = now;
}

void Connection::finish(std::string problem) {
  running_ = false;
  outcome_.done = net::Clock::now();
  if (problem.empty() && outcome_.problem.empty()) {
    if (status_ != 200) {
      problem = fmt::format("status {}: {}", status_, body_.substr(0, 200));
    } else if (sse_ && !done_seen_) {
      problem = "no [DONE]";
    } else if (sse_ && !finish_seen_) {
      problem = "no finish_reason";
    } else if (!sse_) {
      if (!find_string(body_, "\"content\":\"", outcome_.text)) {
        find_string(body_, "\"text\":\"", outcome_.text);
      }
      outcome_.first = outcome_.done;
    }
  }
  if (!problem.empty()) {
    outcome_.problem = std::move(problem);
  }
  outcome_.ok = outcome_.problem.empty();
  on_done_(*this, std::move(outcome_));
}

}  // namespace fairlead::loadgen
