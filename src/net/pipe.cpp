#include <algorithm>
#include <string>

#include "net/reactor.hpp"
#include "net/stream.hpp"

namespace fairlead::net {
namespace {

// One direction of the pipe. Both ends hold it, so each may go first.
struct Channel {
  std::string bytes;
  bool closed = false;  // the writing end has sent its end
  bool broken = false;  // the reading end is gone, or the writer left abortively
  std::size_t capacity = 0;
};

class PipeEnd;

struct Ends {
  PipeEnd* first = nullptr;
  PipeEnd* second = nullptr;
};

class PipeEnd final : public Stream, private Flushable {
 public:
  PipeEnd(std::shared_ptr<Channel> in, std::shared_ptr<Channel> out, std::shared_ptr<Ends> ends,
          bool is_first, std::size_t max_read)
      : in_(std::move(in)),
        out_(std::move(out)),
        ends_(std::move(ends)),
        is_first_(is_first),
        max_read_(max_read) {
    (is_first_ ? ends_->first : ends_->second) = this;
  }

  ~PipeEnd() override {
    (is_first_ ? ends_->first : ends_->second) = nullptr;
    out_->closed = true;
    out_->broken = out_->broken || abortive_;
    in_->broken = true;
    wake_other();
  }

  void set_handler(StreamHandler* handler) override {
    handler_ = handler;
    if (handler_) {
      schedule();
    }
  }

  IoResult read(std::span<char> buffer) override {
    if (in_->bytes.empty()) {
      if (in_->closed) {
        return in_->broken ? IoResult{IoResult::Status::Failed, 0, ECONNRESET}
                           : IoResult{IoResult::Status::Eof, 0, 0};
      }
      return {IoResult::Status::WouldBlock, 0, 0};
    }
    std::size_t count = std::min(buffer.size(), in_->bytes.size());
    if (max_read_ != 0) {
      count = std::min(count, max_read_);
    }
    in_->bytes.copy(buffer.data(), count);
    in_->bytes.erase(0, count);
    wake_other();
    if (!in_->bytes.empty()) {
      schedule();  // the rest is readable even for a reader that stops after a short read
    }
    return {IoResult::Status::Ok, count, 0};
  }

  IoResult write(std::span<const iovec> pieces) override {
    if (out_->broken || out_->closed) {
      return {IoResult::Status::Failed, 0, EPIPE};
    }
    std::size_t total = 0;
    for (const iovec& piece : pieces) {
      const std::size_t room = out_->capacity - std::min(out_->capacity, out_->bytes.size());
      const std::size_t count = std::min(room, piece.iov_len);
      out_->bytes.append(static_cast<const char*>(piece.iov_base), count);
      total += count;
      if (count < piece.iov_len) {
        break;
      }
    }
    if (total == 0) {
      return {IoResult::Status::WouldBlock, 0, 0};
    }
    wake_other();
    return {IoResult::Status::Ok, total, 0};
  }

  void shutdown_write() override {
    out_->closed = true;
    wake_other();
  }

  void set_abortive() override { abortive_ = true; }

  const std::string& peer() const override {
    static const std::string name = "pipe";
    return name;
  }

 private:
  void schedule() {
    if (handler_) {
      Reactor::current()->flush_later(*this);
    }
  }

  void wake_other() {
    PipeEnd* const other = is_first_ ? ends_->second : ends_->first;
    if (other) {
      other->schedule();
    }
  }

  void flush() override {
    // The handler may destroy this end in its first call.
    const std::shared_ptr<Ends> ends = ends_;
    const bool first = is_first_;
    const auto alive = [&] { return (first ? ends->first : ends->second) == this; };
    if (handler_ && (!in_->bytes.empty() || in_->closed)) {
      handler_->on_readable();
    }
    if (alive() && handler_) {
      handler_->on_writable();
    }
  }

  std::shared_ptr<Channel> in_;
  std::shared_ptr<Channel> out_;
  std::shared_ptr<Ends> ends_;
  bool is_first_;
  std::size_t max_read_;
  bool abortive_ = false;
  StreamHandler* handler_ = nullptr;
};

}  // namespace

std::pair<std::unique_ptr<Stream>, std::unique_ptr<Stream>> make_pipe(std::size_t max_read,
                                                                      std::size_t capacity) {
  auto a = std::make_shared<Channel>();
  auto b = std::make_shared<Channel>();
  a->capacity = b->capacity = capacity;
  auto ends = std::make_shared<Ends>();
  auto first = std::make_unique<PipeEnd>(a, b, ends, true, max_read);
  auto second = std::make_unique<PipeEnd>(b, a, ends, false, max_read);
  return {std::move(first), std::move(second)};
}

}  // namespace fairlead::net
