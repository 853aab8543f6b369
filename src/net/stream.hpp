#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>

namespace fairlead::net {

/// Outcome of one non-blocking read or write.
struct IoResult {
  /// The ways a read or write can go.
  enum class Status : unsigned char {
    Ok,          ///< `bytes` were moved; there may be more.
    WouldBlock,  ///< Nothing now; the handler is told when to try again.
    Eof,         ///< The peer closed its side (reads only).
    Failed,      ///< The connection is broken; `error` is the errno.
  };
  Status status = Status::Ok;  ///< What happened.
  std::size_t bytes = 0;       ///< Bytes moved when Ok.
  int error = 0;               ///< errno when Failed.
};

/// Told about readiness. Edge-triggered: after a call the owner reads or writes until WouldBlock
/// (or remembers to go on later by itself).
class StreamHandler {
 public:
  virtual ~StreamHandler() = default;
  /// Bytes, end of stream or an error can be read.
  virtual void on_readable() = 0;
  /// Writing can go on after a WouldBlock.
  virtual void on_writable() = 0;
};

/// A connected, non-blocking byte stream: a TCP socket, TLS on one, or the in-process pipe of
/// tests. Belongs to one reactor. Destroying it closes the connection; the handler may destroy it
/// from its own call.
class Stream {
 public:
  virtual ~Stream() = default;
  /// Registers the receiver of readiness; a stream that is already readable reports it in a later
  /// turn. Null stops reports.
  virtual void set_handler(StreamHandler* handler) = 0;
  /// Reads into `buffer`.
  virtual IoResult read(std::span<char> buffer) = 0;
  /// Writes from the pieces, in order, as many bytes as the stream takes.
  virtual IoResult write(std::span<const iovec> pieces) = 0;
  /// Sends the end of this direction after what was written.
  virtual void shutdown_write() = 0;
  /// Makes the close an abortive one (RST) where the transport knows such a thing.
  virtual void set_abortive() = 0;
  /// The peer's address for logs, e.g. `127.0.0.1:41234`.
  virtual const std::string& peer() const = 0;
};

/// Two connected in-process streams whose reads are cut into pieces of at most `max_read` bytes (0:
/// uncut), so that parsers meet every cut. Both ends belong to the current reactor. `capacity`
/// bounds the bytes in flight per direction.
std::pair<std::unique_ptr<Stream>, std::unique_ptr<Stream>> make_pipe(std::size_t max_read = 0,
                                                                      std::size_t capacity = 64 *
                                                                                             1024);

}  // namespace fairlead::net
