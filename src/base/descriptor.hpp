#pragma once

#include <unistd.h>

namespace fairlead {

/// An open file's descriptor, closed with it; negative for none.
class Descriptor {
 public:
  /// Takes over `fd`.
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) {
      close(fd_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  /// The descriptor.
  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace fairlead
