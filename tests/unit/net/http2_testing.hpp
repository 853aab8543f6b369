#pragma once

#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "net/stream.hpp"
#include "net/testing.hpp"

namespace fairlead::net::testing {

/// Types of HTTP/2 frames (RFC 9113 section 6).
enum FrameType : std::uint8_t {
  kData = 0,
  kHeaders = 1,
  kRstStream = 3,
  kSettings = 4,
  kPing = 6,
  kGoaway = 7,
  kWindowUpdate = 8,
  kContinuation = 9,
};

inline constexpr std::uint8_t kEndStream = 1;
inline constexpr std::uint8_t kAck = 1;
inline constexpr std::uint8_t kEndHeaders = 4;

using Fields = std::vector<std::pair<std::string, std::string>>;

/// One received frame; `fields` is set for HEADERS.
struct Frame {
  std::uint8_t type = 0;
  std::uint8_t flags = 0;
  std::uint32_t stream = 0;
  std::string payload;
  Fields fields;

  bool end_stream() const { return (flags & kEndStream) != 0; }
  std::string field(std::string_view name) const {
    for (const auto& [key, value] : fields) {
      if (key == name) {
        return value;
      }
    }
    return {};
  }
  std::uint32_t number(std::size_t at = 0) const {
    std::uint32_t out = 0;
    for (std::size_t i = at; i < at + 4 && i < payload.size(); ++i) {
      out = out << 8 | static_cast<unsigned char>(payload[i]);
    }
    return out;
  }
};

inline std::string big_endian(std::uint32_t value, int bytes) {
  std::string out;
  for (int shift = (bytes - 1) * 8; shift >= 0; shift -= 8) {
    out += static_cast<char>(value >> shift);
  }
  return out;
}

/// The bytes of a frame.
inline std::string frame(std::uint8_t type, std::uint8_t flags, std::uint32_t stream,
                         std::string_view payload = {}) {
  std::string out = big_endian(static_cast<std::uint32_t>(payload.size()), 3);
  out += static_cast<char>(type);
  out += static_cast<char>(flags);
  return out + big_endian(stream, 4) + std::string(payload);
}

/// A header block of literals that touch no table.
inline std::string header_block(const Fields& fields) {
  std::string out;
  const auto text = [&](std::string_view s) {
    if (s.size() < 127) {
      out += static_cast<char>(s.size());
    } else {
      out += '\x7f';
      std::size_t rest = s.size() - 127;
      while (rest >= 128) {
        out += static_cast<char>(rest % 128 + 128);
        rest /= 128;
      }
      out += static_cast<char>(rest);
    }
    out += s;
  };
  for (const auto& [name, value] : fields) {
    out += '\0';
    text(name);
    text(value);
  }
  return out;
}

/// A HEADERS frame.
inline std::string headers(std::uint32_t stream, const Fields& fields, bool end_stream) {
  return frame(kHeaders, kEndHeaders | (end_stream ? kEndStream : 0), stream, header_block(fields));
}

/// A DATA frame.
inline std::string data(std::uint32_t stream, std::string_view bytes, bool end_stream = false) {
  return frame(kData, end_stream ? kEndStream : 0, stream, bytes);
}

/// A gRPC message with its prefix.
inline std::string grpc_message(std::string_view bytes) {
  return std::string(1, '\0') + big_endian(static_cast<std::uint32_t>(bytes.size()), 4) +
         std::string(bytes);
}

inline constexpr std::string_view kClientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// An HTTP/2 peer, either side, that sends the frames a test writes and records what it receives.
/// It answers nothing by itself but SETTINGS.
class RawPeer final : public StreamHandler {
 public:
  /// `client`: this peer is the client, and begins with the preface and empty settings.
  RawPeer(std::unique_ptr<Stream> stream, bool client)
      : stream_(std::move(stream)), preface_left_(client ? 0 : kClientPreface.size()) {
    nghttp2_hd_inflate_new(&inflater_);
    if (client) {
      send(std::string(kClientPreface) + frame(kSettings, 0, 0));
    }
    stream_->set_handler(this);
  }
  ~RawPeer() override { nghttp2_hd_inflate_del(inflater_); }
  RawPeer(const RawPeer&) = delete;
  RawPeer& operator=(const RawPeer&) = delete;

  /// Sends bytes as they are.
  void send(std::string_view bytes) {
    unsent_ += bytes;
    on_writable();
  }
  /// Closes the connection.
  void close() { stream_.reset(); }
  /// While paused nothing is read.
  void pause() { paused_ = true; }
  void resume() {
    paused_ = false;
    on_readable();
  }

  /// Frames of a type, on one stream when given.
  std::vector<const Frame*> all(std::uint8_t type, std::int64_t stream = -1) const {
    std::vector<const Frame*> out;
    for (const auto& received : frames) {
      if (received->type == type && (stream < 0 || received->stream == stream)) {
        out.push_back(received.get());
      }
    }
    return out;
  }
  /// The first frame of a type, null when there is none.
  const Frame* first(std::uint8_t type, std::int64_t stream = -1) const {
    const auto found = all(type, stream);
    return found.empty() ? nullptr : found.front();
  }
  /// Body bytes of a stream.
  std::string body(std::uint32_t stream) const {
    std::string out;
    for (const Frame* const received : all(kData, stream)) {
      out += received->payload;
    }
    return out;
  }
  /// True when the peer has ended the stream.
  bool ended(std::uint32_t stream) const {
    for (const auto& received : frames) {
      if (received->stream == stream && received->end_stream() &&
          (received->type == kData || received->type == kHeaders)) {
        return true;
      }
    }
    return false;
  }

  std::vector<std::unique_ptr<Frame>> frames;
  bool eof = false;
  bool ack_settings = true;
  bool ack_pings = false;

 private:
  void on_readable() override {
    std::array<char, 65536> buffer;
    while (stream_ && !paused_) {
      const IoResult result = stream_->read(buffer);
      if (result.status == IoResult::Status::WouldBlock) {
        return;
      }
      if (result.status != IoResult::Status::Ok) {
        eof = true;
        return;
      }
      input_.append(buffer.data(), result.bytes);
      parse();
    }
  }

  void on_writable() override {
    while (stream_ && !unsent_.empty()) {
      const iovec piece{unsent_.data(), unsent_.size()};
      const IoResult result = stream_->write({&piece, 1});
      if (result.status != IoResult::Status::Ok) {
        return;
      }
      unsent_.erase(0, result.bytes);
    }
  }

  void parse() {
    const std::size_t skip = std::min(preface_left_, input_.size());
    input_.erase(0, skip);
    preface_left_ -= skip;
    while (preface_left_ == 0 && input_.size() >= 9) {
      Frame head;
      head.payload = input_.substr(0, 3);
      const std::size_t size = head.number();
      if (input_.size() < 9 + size) {
        return;
      }
      auto next = std::make_unique<Frame>();
      next->type = static_cast<std::uint8_t>(input_[3]);
      next->flags = static_cast<std::uint8_t>(input_[4]);
      head.payload = input_.substr(5, 4);
      next->stream = head.number() & 0x7fffffff;
      next->payload = input_.substr(9, size);
      input_.erase(0, 9 + size);
      handle(*next);
      frames.push_back(std::move(next));
    }
  }

  void handle(Frame& received) {
    const bool ack = (received.flags & kAck) != 0;
    if (received.type == kSettings && !ack && ack_settings) {
      send(frame(kSettings, kAck, 0));
    } else if (received.type == kPing && !ack && ack_pings) {
      send(frame(kPing, kAck, 0, received.payload));
    } else if (received.type == kHeaders) {
      inflate(received);
    }
  }

  void inflate(Frame& received) {
    EXPECT_NE(received.flags & kEndHeaders, 0);
    auto* in = reinterpret_cast<std::uint8_t*>(received.payload.data());
    std::size_t left = received.payload.size();
    while (true) {
      nghttp2_nv field{};
      int flags = 0;
      const ssize_t used = nghttp2_hd_inflate_hd2(inflater_, &field, &flags, in, left, 1);
      if (used < 0) {
        ADD_FAILURE() << "a header block cannot be decoded";
        return;
      }
      in += used;
      left -= static_cast<std::size_t>(used);
      if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0) {
        received.fields.emplace_back(
            std::string(reinterpret_cast<char*>(field.name), field.namelen),
            std::string(reinterpret_cast<char*>(field.value), field.valuelen));
      }
      if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0) {
        nghttp2_hd_inflate_end_headers(inflater_);
        return;
      }
    }
  }

  std::unique_ptr<Stream> stream_;
  bool paused_ = false;
  std::size_t preface_left_;
  nghttp2_hd_inflater* inflater_ = nullptr;
  std::string input_;
  std::string unsent_;
};

}  // namespace fairlead::net::testing
