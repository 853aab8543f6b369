#include "loadgen/requests.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.hpp"

namespace fairlead::loadgen {
namespace {

// Every prompt of a corpus begins like this, so that engines that echo give all of them one answer.
constexpr std::string_view kTask =
    "Read the following text with care, say in one sentence what it is about, and name what is "
    "missing in it.\n\n";
// Of the messages before the last one.
constexpr std::size_t kMessageBytes = 6000;
// Successive texts begin this much behind each other when the corpus has been used up once.
constexpr std::size_t kShift = 97;

void append_message(std::string& out, std::string_view role, std::string_view content) {
  json::Writer(out)
      .begin_object()
      .key("role")
      .string(role)
      .key("content")
      .string(content)
      .end_object();
}

}  // namespace

Requests::Requests(const Options& options) : options_(options) {
  if (!options.corpus.empty()) {
    append_history();
  }
}

void Requests::append_history() {
  bool user = true;
  for (std::size_t done = 0; done < options_.history_bytes; user = !user) {
    const std::size_t bytes = std::min(kMessageBytes, options_.history_bytes - done);
    const std::string_view text = slice(bytes);
    append_message(history_, user ? "user" : "assistant",
                   done == 0 ? std::string(kTask).append(text) : std::string(text));
    history_ += ',';
    done += bytes;
  }
}

// The next text of the corpus; never the same twice.
std::string_view Requests::slice(std::size_t bytes) {
  const std::string_view corpus = options_.corpus;
  bytes = std::min(bytes, corpus.size());
  if (offset_ + bytes > corpus.size()) {
    offset_ = (offset_ + kShift) % kMessageBytes;
  }
  offset_ = offset_ + bytes > corpus.size() ? 0 : offset_;
  const std::string_view text = corpus.substr(offset_, bytes);
  offset_ += bytes;
  return text;
}

std::string Requests::next(bool stream) {
  if (!options_.corpus.empty()) {
    return make(stream);
  }
  std::string& same = same_[stream ? 1 : 0];
  if (same.empty()) {
    same = make(stream);
  }
  return same;
}

std::string Requests::make(bool stream) {
  std::string body;
  json::Writer writer(body);
  writer.begin_object().key("model").string(options_.model);
  if (options_.chat) {
    std::string messages = "[" + history_;
    if (options_.corpus.empty()) {
      append_message(messages, "user", options_.prompt);
    } else {
      const std::string task(history_.empty() ? kTask : std::string_view());
      append_message(messages, "user", task + std::string(slice(options_.turn_bytes)));
    }
    writer.key("messages").raw(messages += ']');
  } else {
    writer.key("prompt");
    if (options_.prompt_tokens == 0) {
      writer.string(options_.prompt);
    } else {
      writer.begin_array();
      for (std::size_t i = 0; i < options_.prompt_tokens; ++i) {
        writer.unsigned_integer(10 + i * 7919 % 2000);
      }
      writer.end_array();
    }
  }
  writer.key("max_tokens").integer(options_.max_tokens).key("ignore_eos").boolean(true);
  writer.key("temperature").integer(0);
  if (stream) {
    writer.key("stream").boolean(true);
  }
  writer.end_object();
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: {}:{}\r\nContent-Type: application/json\r\nContent-Length: "
      "{}\r\n\r\n{}",
      options_.chat ? "/v1/chat/completions" : "/v1/completions", options_.host, options_.port,
      body.size(), body);
}

}  // namespace fairlead::loadgen
