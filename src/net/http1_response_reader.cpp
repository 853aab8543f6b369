#include "net/http1_response_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace fairlead::net::http {
namespace {

constexpr int kMaxInterim = 16;
constexpr std::size_t kMaxFields = 512;
// What a Content-Length alone makes us reserve.
constexpr std::size_t kTrustedBody = 1024 * 1024;
constexpr std::size_t kKeptBuffer = 4096;

auto protocol_error(std::string_view what) {
  return fail(ErrorCode::EngineProtocol, fmt::format("bad HTTP response: {}", what));
}

void clear(std::string& buffer) {
  if (buffer.capacity() > kKeptBuffer) {
    buffer = std::string();
  } else {
    buffer.clear();
  }
}

}  // namespace

Result<> ResponseReader::feed(std::string_view bytes) {
  begun_ = begun_ || !bytes.empty();
  const bool buffered = !input_.empty();
  if (buffered) {
    input_.append(bytes);
    bytes = input_;
  }
  std::size_t done = 0;
  while (done < bytes.size()) {
    std::size_t consumed = 0;
    if (auto result = process(bytes.substr(done), consumed); !result) {
      return result;
    }
    done += consumed;
    if (consumed == 0) {
      break;
    }
  }
  if (buffered) {
    input_.erase(0, done);
    if (input_.empty()) {
      clear(input_);
    }
  } else {
    input_.assign(bytes.substr(done));
  }
  return {};
}

Result<> ResponseReader::end() {
  switch (state_) {
    case State::Done: return {};
    case State::UntilEnd: state_ = State::Done; return {};
    default:
      return fail(ErrorCode::EngineDisconnected,
                  begun_ ? "the connection closed in the middle of a response"
                         : "the connection closed before a response");
  }
}

Result<> ResponseReader::process(std::string_view bytes, std::size_t& consumed) {
  switch (state_) {
    case State::Head: return process_head(bytes, consumed);
    case State::Chunked: return process_chunks(bytes, consumed);
    case State::Body: {
      consumed = std::min<std::uint64_t>(remaining_, bytes.size());
      remaining_ -= consumed;
      if (remaining_ == 0) {
        state_ = State::Done;
      }
      return deliver(bytes.substr(0, consumed));
    }
    case State::UntilEnd: consumed = bytes.size(); return deliver(bytes);
    case State::Done:
      excess_ = true;
      consumed = bytes.size();
      return {};
  }
  return {};
}

Result<> ResponseReader::process_head(std::string_view bytes, std::size_t& consumed) {
  switch (scanner_.scan(bytes, limits_.header_bytes, kMaxFields)) {
    case HeadScanner::Status::NeedMore: return {};
    case HeadScanner::Status::Complete: break;
    case HeadScanner::Status::TooLarge:
    case HeadScanner::Status::TooManyFields: return protocol_error("its head is too large");
    case HeadScanner::Status::Malformed: return protocol_error("malformed head");
  }
  consumed = scanner_.size();
  scanner_.reset();
  const auto framing = parse_response_head(bytes.substr(0, consumed), to_head_request_, response_);
  if (!framing) {
    return protocol_error(framing.error().message);
  }
  if (response_.status == 101) {
    return protocol_error("it switches to a protocol that was not asked for");
  }
  if (response_.status / 100 == 1) {
    return ++interim_ > kMaxInterim ? Result<>(protocol_error("too many interim responses"))
                                    : Result<>();
  }
  framing_ = *framing;
  begin_body();
  return {};
}

void ResponseReader::begin_body() {
  if (framing_.chunked) {
    const std::uint64_t bound =
        collects() ? limits_.body_bytes : std::numeric_limits<std::uint64_t>::max();
    decoder_.emplace(bound, limits_.header_bytes, kMaxFields);
    state_ = State::Chunked;
  } else if (!framing_.content_length) {
    framing_.keep_alive = false;
    state_ = State::UntilEnd;
  } else if (*framing_.content_length == 0) {
    state_ = State::Done;
  } else {
    remaining_ = *framing_.content_length;
    if (collects()) {
      response_.body.reserve(std::min<std::uint64_t>(remaining_, kTrustedBody));
    }
    state_ = State::Body;
  }
}

Result<> ResponseReader::process_chunks(std::string_view bytes, std::size_t& consumed) {
  const bool collecting = collects();
  const auto status = decoder_->feed(bytes, consumed, collecting ? response_.body : decoded_);
  switch (status) {
    case ChunkedDecoder::Status::NeedMore:
    case ChunkedDecoder::Status::Complete: break;
    case ChunkedDecoder::Status::BodyTooLarge:
      return protocol_error(fmt::format("its body is above {} bytes", limits_.body_bytes));
    case ChunkedDecoder::Status::HeadsTooLarge:
      return protocol_error("its chunk heads or trailers are too large");
    case ChunkedDecoder::Status::Malformed: return protocol_error("malformed chunk");
  }
  if (status == ChunkedDecoder::Status::Complete) {
    state_ = State::Done;
    decoder_.reset();
  }
  if (!collecting && !decoded_.empty()) {
    (*on_body_)(decoded_);
    clear(decoded_);
  }
  return {};
}

Result<> ResponseReader::deliver(std::string_view bytes) {
  if (!collects()) {
    if (!bytes.empty()) {
      (*on_body_)(bytes);
    }
    return {};
  }
  if (response_.body.size() + bytes.size() > limits_.body_bytes) {
    return protocol_error(fmt::format("its body is above {} bytes", limits_.body_bytes));
  }
  response_.body.append(bytes);
  return {};
}

}  // namespace fairlead::net::http
