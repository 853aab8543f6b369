#include "net/http1_chunks.hpp"

#include <algorithm>

namespace fairlead::net::http {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

bool is_control(char c) {
  return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == '\x7f';
}

}  // namespace

ChunkedDecoder::Status ChunkedDecoder::feed(std::string_view bytes, std::size_t& consumed,
                                            std::string& out) {
  consumed = 0;
  while (consumed < bytes.size() && state_ != State::Done) {
    if (state_ == State::Data) {
      const std::size_t count = std::min<std::uint64_t>(size_, bytes.size() - consumed);
      out.append(bytes.substr(consumed, count));
      consumed += count;
      size_ -= count;
      if (size_ == 0) {
        state_ = State::DataCr;
      }
      continue;
    }
    if (++head_bytes_ > max_head_) {
      return Status::HeadsTooLarge;
    }
    const Status status = step(bytes[consumed++]);
    if (status != Status::NeedMore) {
      return status;
    }
  }
  return state_ == State::Done ? Status::Complete : Status::NeedMore;
}

ChunkedDecoder::Status ChunkedDecoder::step(char c) {
  const auto expect = [&](char wanted, State next) {
    state_ = next;
    return c == wanted ? Status::NeedMore : Status::Malformed;
  };
  switch (state_) {
    case State::Size:
      if (has_digits_ && (c == '\r' || c == ';')) {
        state_ = c == ';' ? State::Extension : State::SizeLf;
        return Status::NeedMore;
      }
      return add_digit(c);
    case State::Extension:
      if (c == '\r') {
        state_ = State::SizeLf;
        return Status::NeedMore;
      }
      return is_control(c) ? Status::Malformed : Status::NeedMore;
    case State::SizeLf: return c == '\n' ? begin_data() : Status::Malformed;
    case State::DataCr: return expect('\r', State::DataLf);
    case State::DataLf: head_bytes_ = 0; return expect('\n', State::Size);
    case State::TrailerStart:
      if (c == '\r') {
        state_ = State::EndLf;
        return Status::NeedMore;
      }
      if (fields_left_ == 0) {
        return Status::HeadsTooLarge;
      }
      --fields_left_;
      state_ = State::TrailerName;
      return is_token_char(c) ? Status::NeedMore : Status::Malformed;
    case State::TrailerName:
      if (c == ':') {
        state_ = State::TrailerValue;
        return Status::NeedMore;
      }
      return is_token_char(c) ? Status::NeedMore : Status::Malformed;
    case State::TrailerValue:
      if (c == '\r') {
        state_ = State::TrailerLf;
        return Status::NeedMore;
      }
      return is_control(c) ? Status::Malformed : Status::NeedMore;
    case State::TrailerLf: return expect('\n', State::TrailerStart);
    case State::EndLf:
      state_ = State::Done;
      return c == '\n' ? Status::Complete : Status::Malformed;
    case State::Data:
    case State::Done: break;
  }
  return Status::Malformed;
}

ChunkedDecoder::Status ChunkedDecoder::add_digit(char c) {
  const int digit = hex_digit(c);
  if (digit < 0 || size_ >> 60 != 0) {
    return Status::Malformed;
  }
  size_ = size_ * 16 + static_cast<std::uint64_t>(digit);
  has_digits_ = true;
  return Status::NeedMore;
}

ChunkedDecoder::Status ChunkedDecoder::begin_data() {
  if (size_ > body_left_) {
    return Status::BodyTooLarge;
  }
  body_left_ -= size_;
  has_digits_ = false;
  head_bytes_ = 0;
  state_ = size_ > 0 ? State::Data : State::TrailerStart;
  return Status::NeedMore;
}

}  // namespace fairlead::net::http
