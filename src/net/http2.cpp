#include "net/http2.hpp"

#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <array>
#include <utility>

namespace fairlead::net::http2 {
namespace {

constexpr std::uint32_t kMaxFrameBytes = 64 * 1024;
constexpr std::int32_t kLastUsefulStreamId = 1 << 30;
constexpr std::size_t kHeaderOverhead = 32;  // RFC 9113 section 6.5.2

std::span<nghttp2_nv> to_nv(std::span<const Field> fields) {
  thread_local std::vector<nghttp2_nv> out;
  out.clear();
  const auto bytes = [](std::string_view text) {
    // nghttp2 copies and does not write.
    return reinterpret_cast<std::uint8_t*>(const_cast<char*>(text.data()));
  };
  for (const Field& field : fields) {
    const std::uint8_t flags = field.unindexed ? NGHTTP2_NV_FLAG_NO_INDEX : NGHTTP2_NV_FLAG_NONE;
    out.push_back(
        {bytes(field.name), bytes(field.value), field.name.size(), field.value.size(), flags});
  }
  return out;
}

std::string_view view(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

struct OptionDeleter {
  void operator()(nghttp2_option* option) const { nghttp2_option_del(option); }
};

}  // namespace

std::string_view error_name(ErrorCode code) {
  constexpr std::array<std::string_view, 14> kNames = {"NO_ERROR",
                                                       "PROTOCOL_ERROR",
                                                       "INTERNAL_ERROR",
                                                       "FLOW_CONTROL_ERROR",
                                                       "SETTINGS_TIMEOUT",
                                                       "STREAM_CLOSED",
                                                       "FRAME_SIZE_ERROR",
                                                       "REFUSED_STREAM",
                                                       "CANCEL",
                                                       "COMPRESSION_ERROR",
                                                       "CONNECT_ERROR",
                                                       "ENHANCE_YOUR_CALM",
                                                       "INADEQUATE_SECURITY",
                                                       "HTTP_1_1_REQUIRED"};
  const auto index = static_cast<std::size_t>(code);
  return index < kNames.size() ? kNames[index] : "an unknown error code";
}

// What nghttp2 calls. Nothing here sends, receives or ends the session.
struct Session::Callbacks {
  static Session& self(void* user_data) { return *static_cast<Session*>(user_data); }

  static SessionStream* find(nghttp2_session* session, std::int32_t id) {
    return static_cast<SessionStream*>(nghttp2_session_get_stream_user_data(session, id));
  }

  // A session that was closed by one of its events must not go on.
  static int result(const Session& session) {
    return session.closed_ ? NGHTTP2_ERR_CALLBACK_FAILURE : 0;
  }

  static int on_begin_headers(nghttp2_session* session, const nghttp2_frame* frame,
                              void* user_data) {
    Session& owner = self(user_data);
    const std::int32_t id = frame->hd.stream_id;
    if (owner.options_.server && frame->headers.cat == NGHTTP2_HCAT_REQUEST) {
      if (SessionStream* const stream = owner.on_stream(id)) {
        owner.attach(*stream, id);
        nghttp2_session_set_stream_user_data(session, id, stream);
      } else {
        nghttp2_submit_rst_stream(session, NGHTTP2_FLAG_NONE, id, NGHTTP2_REFUSED_STREAM);
      }
      return result(owner);
    }
    if (SessionStream* const stream = find(session, id)) {
      stream->header_bytes_ = stream->header_count_ = 0;
      stream->headers_too_large_ = false;
    }
    return 0;
  }

  static int on_header(nghttp2_session* session, const nghttp2_frame* frame,
                       const std::uint8_t* name, std::size_t name_size, const std::uint8_t* value,
                       std::size_t value_size, std::uint8_t, void* user_data) {
    SessionStream* const stream = find(session, frame->hd.stream_id);
    if (!stream || stream->headers_too_large_) {
      return 0;
    }
    const SessionOptions& bounds = self(user_data).options_;
    stream->header_bytes_ += name_size + value_size + kHeaderOverhead;
    ++stream->header_count_;
    stream->headers_too_large_ =
        stream->header_bytes_ > bounds.header_bytes || stream->header_count_ > bounds.header_count;
    if (!stream->headers_too_large_) {
      stream->on_header(view(name, name_size), view(value, value_size));
    }
    return 0;
  }

  static int on_frame(nghttp2_session* session, const nghttp2_frame* frame, void* user_data) {
    Session& owner = self(user_data);
    switch (frame->hd.type) {
      case NGHTTP2_DATA:
      case NGHTTP2_HEADERS: {
        const bool end = (frame->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
        if (frame->hd.type == NGHTTP2_DATA && !end) {
          return 0;
        }
        SessionStream* const stream = find(session, frame->hd.stream_id);
        if (stream && frame->hd.type == NGHTTP2_HEADERS) {
          stream->on_headers(stream->headers_too_large_, end);
        }
        if (stream && end && stream->session_) {
          stream->on_remote_end();
        }
        break;
      }
      case NGHTTP2_SETTINGS:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) == 0) {
          owner.on_settings();
        }
        break;
      case NGHTTP2_GOAWAY:
        owner.goaway_received_ = true;
        owner.on_goaway(static_cast<ErrorCode>(frame->goaway.error_code));
        break;
      case NGHTTP2_PING:
        if ((frame->hd.flags & NGHTTP2_FLAG_ACK) != 0 && owner.shutting_down_) {
          // The peer has seen the notice; what it began before is known now.
          nghttp2_submit_goaway(session, NGHTTP2_FLAG_NONE,
                                nghttp2_session_get_last_proc_stream_id(session), NGHTTP2_NO_ERROR,
                                nullptr, 0);
        }
        break;
      default: break;
    }
    return result(owner);
  }

  static int on_data(nghttp2_session* session, std::uint8_t, std::int32_t id,
                     const std::uint8_t* data, std::size_t size, void* user_data) {
    Session& owner = self(user_data);
    owner.received_ += size;
    SessionStream* const stream = find(session, id);
    if (!stream) {
      return 0;
    }
    stream->held_bytes_ += size;
    stream->on_data(view(data, size));
    if (stream->session_ && !stream->paused_) {
      owner.return_window(*stream);
    }
    return result(owner);
  }

  static int on_close(nghttp2_session* session, std::int32_t id, std::uint32_t code,
                      void* user_data) {
    Session& owner = self(user_data);
    if (SessionStream* const stream = find(session, id)) {
      nghttp2_session_set_stream_user_data(session, id, nullptr);
      owner.release(*stream);
      stream->on_closed(static_cast<ErrorCode>(code), {});
    }
    if (!owner.closed_) {
      owner.on_stream_gone();
    }
    return result(owner);
  }

  static int on_sent(nghttp2_session* session, const nghttp2_frame* frame, void* user_data) {
    if (frame->hd.type == NGHTTP2_HEADERS) {
      if (SessionStream* const stream = find(session, frame->hd.stream_id)) {
        self(user_data).on_headers_sent(*stream);
      }
    }
    return 0;
  }

  static ssize_t read_output(nghttp2_session* session, std::int32_t id, std::uint8_t*,
                             std::size_t room, std::uint32_t* flags, nghttp2_data_source*, void*) {
    SessionStream* const stream = find(session, id);
    if (!stream) {
      return NGHTTP2_ERR_DEFERRED;  // its reset is on the way
    }
    const std::size_t left = stream->output_left();
    const std::size_t count = std::min(left, room);
    if (count == 0 && !stream->output_closed_) {
      stream->deferred_ = true;
      return NGHTTP2_ERR_DEFERRED;
    }
    if (count > 0) {
      *flags |= NGHTTP2_DATA_FLAG_NO_COPY;
    }
    if (count == left && stream->output_closed_) {
      *flags |= NGHTTP2_DATA_FLAG_EOF;
      if (stream->trailers_.size() > 0) {
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        std::vector<Field> fields;
        for (const http::Header& header : stream->trailers_) {
          fields.push_back({header.name, header.value});
        }
        const auto nv = to_nv(fields);
        nghttp2_submit_trailer(session, id, nv.data(), nv.size());
      }
    }
    return static_cast<ssize_t>(count);
  }

  static int send_output(nghttp2_session* session, nghttp2_frame* frame,
                         const std::uint8_t* frame_head, std::size_t size, nghttp2_data_source*,
                         void* user_data) {
    Session& owner = self(user_data);
    SessionStream* const stream = find(session, frame->hd.stream_id);
    if (!stream || !owner.batch_) {
      return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    constexpr std::size_t kFrameHead = 9;
    owner.batch_->append(view(frame_head, kFrameHead));
    owner.batch_->append(*stream->output_, stream->output_begin_, size);
    stream->output_begin_ += size;
    if (!std::exchange(stream->taken_, true)) {
      owner.taken_.push_back(stream->id_);
    }
    owner.batch_full_ = owner.batch_->size() >= kWriteBytes;
    return owner.batch_full_ ? NGHTTP2_ERR_PAUSE : 0;
  }

  static const nghttp2_session_callbacks* table() {
    static const auto callbacks = [] {
      nghttp2_session_callbacks* raw = nullptr;
      nghttp2_session_callbacks_new(&raw);
      nghttp2_session_callbacks_set_on_begin_headers_callback(raw, on_begin_headers);
      nghttp2_session_callbacks_set_on_header_callback(raw, on_header);
      nghttp2_session_callbacks_set_on_frame_recv_callback(raw, on_frame);
      nghttp2_session_callbacks_set_on_data_chunk_recv_callback(raw, on_data);
      nghttp2_session_callbacks_set_on_stream_close_callback(raw, on_close);
      nghttp2_session_callbacks_set_on_frame_send_callback(raw, on_sent);
      nghttp2_session_callbacks_set_send_data_callback(raw, send_output);
      return std::unique_ptr<nghttp2_session_callbacks, void (*)(nghttp2_session_callbacks*)>(
          raw, nghttp2_session_callbacks_del);
    }();
    return callbacks.get();
  }

  static nghttp2_data_provider provider() {
    nghttp2_data_provider out{};
    out.read_callback = read_output;
    return out;
  }
};

SessionStream::~SessionStream() {
  if (session_) {
    session_->reset(*this, ErrorCode::Cancel);
  }
}

Session::Session(std::unique_ptr<Stream> stream, const SessionOptions& options)
    : reactor_(*Reactor::current()),
      stream_(std::move(stream)),
      options_(options),
      last_received_(reactor_.now()) {
  nghttp2_option* raw = nullptr;
  nghttp2_option_new(&raw);
  const std::unique_ptr<nghttp2_option, OptionDeleter> option(raw);
  nghttp2_option_set_no_auto_window_update(raw, 1);
  nghttp2_option_set_no_closed_streams(raw, 1);
  // Floods: acknowledgements owed, settings per frame, frames of one header block, and resets.
  nghttp2_option_set_max_outbound_ack(raw, 1000);
  nghttp2_option_set_max_settings(raw, 32);
  nghttp2_option_set_max_continuations(raw, 8);
  nghttp2_option_set_stream_reset_rate_limit(raw, 1000, 33);
  const auto create = options.server ? nghttp2_session_server_new2 : nghttp2_session_client_new2;
  create(&session_, Callbacks::table(), this, raw);
}

Session::~Session() {
  abandon();
  nghttp2_session_del(session_);
}

void Session::submit_settings() {
  std::vector<nghttp2_settings_entry> settings = {
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, options_.stream_window_bytes},
      {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, kMaxFrameBytes},
      {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, static_cast<std::uint32_t>(options_.header_bytes)},
  };
  if (options_.server) {
    settings.push_back({NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, options_.max_streams});
  } else {
    settings.push_back({NGHTTP2_SETTINGS_ENABLE_PUSH, 0});
  }
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
  nghttp2_session_set_local_window_size(
      session_, NGHTTP2_FLAG_NONE, 0, static_cast<std::int32_t>(options_.connection_window_bytes));
}

void Session::begin(std::string_view already_read) {
  submit_settings();
  reactor_.flush_later(*this);
  stream_->set_handler(this);
  if (already_read.empty() || feed(already_read)) {
    read_some();
  }
}

void Session::close(std::string_view reason) {
  if (closed_) {
    return;
  }
  closed_ = true;
  stream_->set_handler(nullptr);
  Flushable::unlink();
  while (!streams_.empty()) {
    SessionStream& stream = streams_.front();
    release(stream);
    stream.on_closed(ErrorCode::InternalError, reason);
  }
  on_lost(reason);
}

void Session::abandon() {
  if (!closed_) {
    closed_ = true;
    stream_->set_handler(nullptr);
    Flushable::unlink();
  }
  while (!streams_.empty()) {
    release(streams_.front());
  }
}

void Session::attach(SessionStream& stream, std::int32_t id) {
  stream.session_ = this;
  stream.id_ = id;
  streams_.push_back(stream);
  ++stream_count_;
}

void Session::release(SessionStream& stream) {
  stream.session_ = nullptr;
  stream.unlink();
  --stream_count_;
}

bool Session::open(SessionStream& stream, std::span<const Field> fields) {
  if (closed_ || refuses_streams()) {
    return false;
  }
  const auto nv = to_nv(fields);
  const nghttp2_data_provider provider = Callbacks::provider();
  const std::int32_t id =
      nghttp2_submit_request(session_, nullptr, nv.data(), nv.size(), &provider, &stream);
  if (id < 0) {
    exhausted_ = true;
    return false;
  }
  attach(stream, id);
  reactor_.flush_later(*this);
  return true;
}

void Session::send_headers(SessionStream& stream, std::span<const Field> fields, bool end_stream) {
  if (closed_ || stream.session_ != this) {
    return;
  }
  const auto nv = to_nv(fields);
  const nghttp2_data_provider provider = Callbacks::provider();
  nghttp2_submit_response(session_, stream.id_, nv.data(), nv.size(),
                          end_stream ? nullptr : &provider);
  reactor_.flush_later(*this);
}

void Session::send_interim(SessionStream& stream, std::span<const Field> fields) {
  if (closed_ || stream.session_ != this) {
    return;
  }
  const auto nv = to_nv(fields);
  nghttp2_submit_headers(session_, NGHTTP2_FLAG_NONE, stream.id_, nullptr, nv.data(), nv.size(),
                         nullptr);
  reactor_.flush_later(*this);
}

void Session::commit(SessionStream& stream) {
  if (closed_ || stream.session_ != this) {
    return;
  }
  if (std::exchange(stream.deferred_, false)) {
    dirty_.push_back(stream.id_);
  }
  reactor_.flush_later(*this);
}

void Session::reset(SessionStream& stream, ErrorCode code) {
  if (stream.session_ != this) {
    return;
  }
  release(stream);
  if (!closed_) {
    nghttp2_session_set_stream_user_data(session_, stream.id_, nullptr);
    nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, stream.id_,
                              static_cast<std::uint32_t>(code));
    reactor_.flush_later(*this);
  }
}

void Session::return_window(SessionStream& stream) {
  // nghttp2 sends the update at half a window; asking it less often saves a look-up per chunk.
  if (stream.held_bytes_ >= options_.stream_window_bytes / 4) {
    nghttp2_session_consume_stream(session_, stream.id_, std::exchange(stream.held_bytes_, 0));
  }
}

void Session::set_paused(SessionStream& stream, bool paused) {
  stream.paused_ = paused;
  if (!paused && stream.session_ == this && !closed_) {
    return_window(stream);
    reactor_.flush_later(*this);
  }
}

void Session::ping() {
  if (!closed_) {
    nghttp2_submit_ping(session_, NGHTTP2_FLAG_NONE, nullptr);
    reactor_.flush_later(*this);
  }
}

void Session::shut_down() {
  if (closed_ || std::exchange(shutting_down_, true)) {
    return;
  }
  nghttp2_submit_shutdown_notice(session_);
  ping();
}

std::uint32_t Session::peer_max_streams() const {
  return nghttp2_session_get_remote_settings(session_, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS);
}

bool Session::refuses_streams() const {
  return closed_ || goaway_received_ || exhausted_ ||
         nghttp2_session_check_request_allowed(session_) == 0 ||
         static_cast<std::int32_t>(nghttp2_session_get_next_stream_id(session_)) >
             kLastUsefulStreamId;
}

}  // namespace fairlead::net::http2
