#include "hub/checksum.hpp"

#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <vector>

namespace fairlead::hub {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 16;
constexpr std::size_t kGitDigits = 40;
constexpr std::size_t kSha256Digits = 64;

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

}  // namespace

std::string_view plain_etag(std::string_view header) {
  if (header.starts_with("W/")) {
    header.remove_prefix(2);
  }
  if (header.size() >= 2 && header.front() == '"' && header.back() == '"') {
    header = header.substr(1, header.size() - 2);
  }
  return header;
}

std::optional<ChecksumKind> checksum_kind(std::string_view etag) {
  if (!std::ranges::all_of(
          etag, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); })) {
    return std::nullopt;
  }
  return etag.size() == kGitDigits      ? std::optional(ChecksumKind::GitBlob)
         : etag.size() == kSha256Digits ? std::optional(ChecksumKind::Sha256)
                                        : std::nullopt;
}

std::optional<std::string> checksum_of(int fd, ChecksumKind kind) {
  struct stat found{};
  const std::unique_ptr<EVP_MD_CTX, FreeContext> context(EVP_MD_CTX_new());
  const EVP_MD* digest = kind == ChecksumKind::GitBlob ? EVP_sha1() : EVP_sha256();
  if (!context || fstat(fd, &found) != 0 ||
      EVP_DigestInit_ex(context.get(), digest, nullptr) != 1) {
    return std::nullopt;
  }
  if (kind == ChecksumKind::GitBlob) {
    std::string head = fmt::format("blob {}", found.st_size);
    head.push_back('\0');
    EVP_DigestUpdate(context.get(), head.data(), head.size());
  }
  std::vector<char> buffer(kReadBytes);
  off_t offset = 0;
  while (true) {
    const ssize_t got = pread(fd, buffer.data(), buffer.size(), offset);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got < 0) {
      return std::nullopt;
    }
    if (got == 0) {
      break;
    }
    EVP_DigestUpdate(context.get(), buffer.data(), static_cast<std::size_t>(got));
    offset += got;
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> value{};
  unsigned int size = 0;
  if (EVP_DigestFinal_ex(context.get(), value.data(), &size) != 1) {
    return std::nullopt;
  }
  std::string digits;
  for (unsigned int i = 0; i < size; ++i) {
    digits += fmt::format("{:02x}", value[i]);
  }
  return digits;
}

}  // namespace fairlead::hub
