#include "hub/part_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "hub/cache.hpp"
#include "hub/checksum.hpp"

namespace fairlead::hub {
namespace {

std::error_code last_error() { return {errno, std::generic_category()}; }

}  // namespace

Result<PartFile> PartFile::open(const std::filesystem::path& blob) {
  if (Result<> made = make_parents(blob); !made) {
    return std::unexpected(made.error());
  }
  const std::filesystem::path path = blob.string() + ".incomplete";
  auto file = std::make_unique<Descriptor>(
      ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666));
  struct stat found{};
  if (file->get() < 0 || fstat(file->get(), &found) != 0) {
    return cache_failure("write", path, last_error());
  }
  if (!S_ISREG(found.st_mode)) {
    return cache_failure("write", path, std::make_error_code(std::errc::invalid_argument));
  }
  return PartFile(blob, path, std::move(file), static_cast<std::uint64_t>(found.st_size));
}

Result<> PartFile::append(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t put = pwrite(file_->get(), bytes.data(), bytes.size(), static_cast<off_t>(size_));
    if (put < 0 && errno == EINTR) {
      continue;
    }
    if (put < 0) {
      return cache_failure("write", path_, last_error());
    }
    size_ += static_cast<std::uint64_t>(put);
    bytes.remove_prefix(static_cast<std::size_t>(put));
  }
  return {};
}

Result<> PartFile::clear() {
  if (ftruncate(file_->get(), 0) != 0) {
    return cache_failure("write", path_, last_error());
  }
  size_ = 0;
  return {};
}

bool PartFile::matches(std::string_view etag) const {
  const auto kind = checksum_kind(etag);
  return kind && checksum_of(file_->get(), *kind) == etag;
}

Result<> PartFile::publish() {
  if (fsync(file_->get()) != 0) {
    return cache_failure("write", path_, last_error());
  }
  std::error_code error;
  std::filesystem::rename(path_, blob_, error);
  if (error) {
    return cache_failure("write", blob_, error);
  }
  return {};
}

}  // namespace fairlead::hub
