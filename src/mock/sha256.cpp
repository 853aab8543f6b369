#include "mock/sha256.hpp"

#include <openssl/evp.h>

namespace fairlead::mock {

Sha256Digest sha256(std::string_view bytes) {
  Sha256Digest digest{};
  EVP_Digest(bytes.data(), bytes.size(), digest.data(), nullptr, EVP_sha256(), nullptr);
  return digest;
}

}  // namespace fairlead::mock
