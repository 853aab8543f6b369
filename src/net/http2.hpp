#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/intrusive_list.hpp"
#include "net/http.hpp"
#include "net/reactor.hpp"
#include "net/stream.hpp"

struct nghttp2_session;

namespace fairlead::net::http2 {

/// Error codes of RST_STREAM and GOAWAY (RFC 9113 section 7).
enum class ErrorCode : std::uint32_t {
  NoError = 0,              ///< Graceful.
  ProtocolError = 1,        ///< Unspecific protocol error.
  InternalError = 2,        ///< Fault of the sender.
  FlowControlError = 3,     ///< The peer broke flow control.
  SettingsTimeout = 4,      ///< No acknowledgement of SETTINGS.
  StreamClosed = 5,         ///< Frame on a half-closed stream.
  FrameSizeError = 6,       ///< Frame of a wrong size.
  RefusedStream = 7,        ///< Nothing of the stream was processed; it may be sent again.
  Cancel = 8,               ///< Not wanted any more.
  CompressionError = 9,     ///< Broken HPACK state.
  ConnectError = 10,        ///< CONNECT failed.
  EnhanceYourCalm = 11,     ///< Excessive load.
  InadequateSecurity = 12,  ///< TLS too weak.
  Http11Required = 13,      ///< Use HTTP/1.1.
};

/// The name as RFC 9113 spells it, e.g. `REFUSED_STREAM`.
std::string_view error_name(ErrorCode code);

/// A field to send; the name is lower-case.
struct Field {
  std::string_view name;   ///< Lower-case.
  std::string_view value;  ///< Raw.
  bool unindexed = false;  ///< Changes with every request: kept out of the HPACK table.
};

/// Bounds and windows of one session.
struct SessionOptions {
  bool server = false;                                       ///< Which side.
  std::uint32_t stream_window_bytes = 1024 * 1024;           ///< Receive window of one stream.
  std::uint32_t connection_window_bytes = 16 * 1024 * 1024;  ///< Receive window of them all.
  std::uint32_t max_streams = 256;                           ///< Streams the peer may have open.
  std::size_t header_bytes = 64 * 1024;                      ///< One header block, decoded.
  std::size_t header_count = 256;                            ///< Fields of one header block.
};

class Session;

/// One stream of a session: receives its events inline, inside nghttp2's callbacks, and holds what
/// it sends. Destroying an attached stream resets it (CANCEL). A stream must not be destroyed from
/// inside its own events; every other one may be.
class SessionStream : public ListNode<SessionStream> {
 public:
  SessionStream() = default;
  SessionStream(const SessionStream&) = delete;
  SessionStream& operator=(const SessionStream&) = delete;
  virtual ~SessionStream();

  /// The session; null before the stream began and after it ended.
  Session* session() const { return session_; }
  /// Number on the wire; 0 before the stream began.
  std::int32_t stream_id() const { return id_; }

 protected:
  friend class Session;

  /// A field of the block being received, pseudo-fields included.
  virtual void on_header(std::string_view name, std::string_view value) = 0;
  /// A block is complete. `too_large`: it was above the session's bounds and the excess fields were
  /// dropped. `end_stream`: nothing follows it.
  virtual void on_headers(bool too_large, bool end_stream) = 0;
  /// Body bytes, valid during the call.
  virtual void on_data(std::string_view bytes) = 0;
  /// The peer has ended its direction.
  virtual void on_remote_end() = 0;
  /// The stream is over and already detached: both directions ended (NoError), it was reset, or
  /// the session broke (then `lost` is the reason, not empty).
  virtual void on_closed(ErrorCode code, std::string_view lost) = 0;
  /// Some output was taken by the transport; called at the end of the turn, outside of nghttp2.
  virtual void on_output_taken() {}

  /// Bytes committed and not yet taken by the transport.
  std::size_t output_left() const { return output_end_ - output_begin_; }

  std::string* output_ = nullptr;  ///< What is sent; bytes below `output_begin_` are gone.
  std::size_t output_begin_ = 0;   ///< First byte not taken yet.
  std::size_t output_end_ = 0;     ///< End of what may be sent.
  bool output_closed_ = false;     ///< Nothing follows `output_end_` but the trailers.
  http::HeaderList trailers_;      ///< Sent after the last byte when not empty.

 private:
  Session* session_ = nullptr;
  std::int32_t id_ = 0;
  bool deferred_ = false;  // nghttp2 waits to be told that there is output again
  bool taken_ = false;     // some output was taken in this turn
  bool paused_ = false;
  bool headers_too_large_ = false;
  std::size_t held_bytes_ = 0;  // received, window not returned yet
  std::size_t header_bytes_ = 0;
  std::size_t header_count_ = 0;
};

/// One HTTP/2 connection, either side, in one reactor: nghttp2 between a byte stream and
/// SessionStreams. Whatever is submitted during a turn leaves in one write at its end. Automatic
/// window updates are off: the connection's window is returned at once, a stream's unless it is
/// paused. Made inside a turn of its reactor. Must not be destroyed from inside an event: owners
/// use `Reactor::destroy_later`.
class Session : protected StreamHandler, protected Flushable {
 public:
  /// Takes a connected stream; nothing happens before `begin`.
  Session(std::unique_ptr<Stream> stream, const SessionOptions& options);
  ~Session() override;
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Sends the settings, handles `already_read`, listens, and reads what has already come.
  void begin(std::string_view already_read = {});
  /// Ends the connection: streams get `on_closed(lost)`, then `on_lost` is called. Once.
  void close(std::string_view reason);
  /// Like `close` without any event; streams are detached silently.
  void abandon();
  /// True after `close` or `abandon`.
  bool closed() const { return closed_; }

  /// Client: begins a stream whose output and `output_closed_` are set. False when no stream can be
  /// opened any more.
  bool open(SessionStream& stream, std::span<const Field> fields);
  /// Server: sends a header block; `end_stream` when neither body nor trailers follow.
  void send_headers(SessionStream& stream, std::span<const Field> fields, bool end_stream);
  /// Server: sends an interim (1xx) header block.
  void send_interim(SessionStream& stream, std::span<const Field> fields);
  /// Tells that `output_end_` or `output_closed_` changed.
  void commit(SessionStream& stream);
  /// Resets the stream and detaches it without an event.
  void reset(SessionStream& stream, ErrorCode code);
  /// While paused, the stream's window is not returned.
  void set_paused(SessionStream& stream, bool paused);
  /// Sends a PING; any byte from the peer counts as its answer, see `last_received`.
  void ping();
  /// Tells the peer to open no more streams; running ones go on. The session closes by itself when
  /// none is left.
  void shut_down();

  /// When bytes last arrived.
  TimePoint last_received() const { return last_received_; }
  /// Attached streams.
  std::size_t streams() const { return stream_count_; }
  /// The peer's limit of concurrent streams, as of its last SETTINGS.
  std::uint32_t peer_max_streams() const;
  /// True once this side can open no further stream (GOAWAY, or ids used up).
  bool refuses_streams() const;
  /// Bytes that end behind everything submitted and collected so far, and how many of them the
  /// transport took: a header block collected at an offset not yet taken never left this process.
  std::uint64_t collected() const { return collected_; }
  /// Bytes taken by the transport.
  std::uint64_t written() const { return written_; }
  /// True while the transport takes no more bytes.
  bool blocked() const { return blocked_; }
  /// Where this session lives.
  Reactor& reactor() { return reactor_; }
  /// The transport.
  Stream& transport() { return *stream_; }

 protected:
  /// Server: the peer begins a stream. The returned object must stay alive until `on_closed`; null
  /// refuses it.
  virtual SessionStream* on_stream(std::int32_t id) = 0;
  /// The peer's SETTINGS arrived (also later changes).
  virtual void on_settings() {}
  /// The peer sent GOAWAY.
  virtual void on_goaway(ErrorCode code) { static_cast<void>(code); }
  /// A header block of `stream` was collected for sending; inside nghttp2.
  virtual void on_headers_sent(SessionStream& stream) { static_cast<void>(stream); }
  /// A stream has ended; called after its own `on_closed`.
  virtual void on_stream_gone() {}
  /// The connection is over; destroy it later.
  virtual void on_lost(std::string_view reason) = 0;

  void on_readable() override;
  void on_writable() override;
  void flush() override;

 private:
  struct Callbacks;

  static constexpr std::size_t kWriteBytes = 256 * 1024;  // collected for one write

  void submit_settings();
  void read_some();
  bool feed(std::string_view bytes);
  void send();
  bool write_unsent();
  bool collect(std::string& batch);
  std::size_t write(std::string_view bytes);
  void report_taken();
  void attach(SessionStream& stream, std::int32_t id);
  void release(SessionStream& stream);
  void return_window(SessionStream& stream);

  Reactor& reactor_;
  std::unique_ptr<Stream> stream_;
  SessionOptions options_;
  nghttp2_session* session_ = nullptr;
  IntrusiveList<SessionStream, SessionStream> streams_;
  std::size_t stream_count_ = 0;
  std::vector<std::int32_t> dirty_;  // streams with new output
  std::vector<std::int32_t> taken_;  // streams some of whose output was taken
  std::string unsent_;               // collected, not taken by the transport
  std::string* batch_ = nullptr;     // where DATA payload is collected, during collect()
  std::size_t received_ = 0;         // DATA bytes of this batch, for the connection's window
  std::uint64_t collected_ = 0;
  std::uint64_t written_ = 0;
  TimePoint last_received_;
  bool closed_ = false;
  bool blocked_ = false;  // waiting for on_writable
  bool read_more_ = false;
  bool batch_full_ = false;
  bool goaway_received_ = false;
  bool exhausted_ = false;  // no stream can be opened any more
  bool shutting_down_ = false;
};

}  // namespace fairlead::net::http2
