// SPDX-License-Identifier: MIT
// Reference: RFC 8032 (Ed25519); EVP_DigestSign(3) and EVP_PKEY_ED25519(7) of OpenSSL.
#include "machine/fetch/signature.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <memory>

namespace p2pd {

namespace fs = std::filesystem;

namespace {

constexpr std::size_t kSignatureBytes = 64;

template <auto function>
struct Free {
  template <class T>
  void operator()(T* object) const {
    function(object);
  }
};
using Bio = std::unique_ptr<BIO, Free<BIO_free_all>>;
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using Context = std::unique_ptr<EVP_MD_CTX, Free<EVP_MD_CTX_free>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;

const unsigned char* bytes_of(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

Bio reader(const std::string& text) { return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size()))); }

/// Answers for OpenSSL, which would ask the terminal for a passphrase.
int no_passphrase(char*, int, int, void*) { return -1; }

bool is_ed25519(const Key& key) { return key && EVP_PKEY_id(key.get()) == EVP_PKEY_ED25519; }

Result<Key> private_key(const KeyFile& file) {
  Key key(PEM_read_bio_PrivateKey(reader(file.pem).get(), nullptr, no_passphrase, nullptr));
  if (is_ed25519(key)) return key;
  return fail(ErrorCode::invalid, file.file + " holds no private Ed25519 key, or one with a passphrase",
              "openssl genpkey -algorithm ed25519 -out " + file.file);
}

/// A public key, and the time for which its certificate is valid.
struct PublicKey {
  Key key;             ///< null: none that is Ed25519
  std::string reason;  ///< why it does not count now; empty: it does
};

std::string date(const ASN1_TIME* time) {
  std::tm parts{};
  std::array<char, 32> text{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return "an unknown date";
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d", &parts)};
}

PublicKey of_certificate(const Certificate& certificate) {
  PublicKey found{Key(X509_get_pubkey(certificate.get())), {}};
  const ASN1_TIME* const begin = X509_get0_notBefore(certificate.get());
  const ASN1_TIME* const end = X509_get0_notAfter(certificate.get());
  if (X509_cmp_current_time(begin) >= 0) found.reason = "is valid from " + date(begin) + " on";
  if (X509_cmp_current_time(end) <= 0) found.reason = "expired on " + date(end);
  return found;
}

PublicKey public_key(const KeyFile& file) {
  PublicKey found;
  if (const Certificate certificate{PEM_read_bio_X509(reader(file.pem).get(), nullptr, no_passphrase, nullptr)})
    found = of_certificate(certificate);
  else
    found.key.reset(PEM_read_bio_PUBKEY(reader(file.pem).get(), nullptr, no_passphrase, nullptr));
  if (!is_ed25519(found.key)) found = {nullptr, "holds no public Ed25519 key and no certificate of one"};
  return found;
}

bool is_signature(const Key& key, std::string_view signature, std::string_view text) {
  const Context context(EVP_MD_CTX_new());
  return signature.size() == kSignatureBytes && context &&
         EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key.get()) == 1 &&
         EVP_DigestVerify(context.get(), bytes_of(signature), signature.size(), bytes_of(text), text.size()) == 1;
}

}  // namespace

Result<std::string> sign(const KeyFile& file, std::string_view text) {
  const Key key = TRY(private_key(file));
  const Context context(EVP_MD_CTX_new());
  std::string signature(kSignatureBytes, '\0');
  std::size_t size = signature.size();
  if (!context || EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key.get()) != 1 ||
      EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size, bytes_of(text),
                     text.size()) != 1)
    return fail(ErrorCode::io, "OpenSSL makes no signature with " + file.file);
  return signature;
}

Result<KeyFile> public_key_of(const KeyFile& file) {
  const Key key = TRY(private_key(file));
  const Bio out(BIO_new(BIO_s_mem()));
  char* text = nullptr;
  if (!out || PEM_write_bio_PUBKEY(out.get(), key.get()) != 1)
    return fail(ErrorCode::io, "OpenSSL does not write the public key of " + file.file);
  const long size = BIO_get_mem_data(out.get(), &text);
  return KeyFile{file.file, std::string(text, static_cast<std::size_t>(size))};
}

Result<std::string> verify(const std::vector<KeyFile>& keys, std::string_view signature, std::string_view text) {
  std::vector<std::string> names, unfit;
  for (const KeyFile& file : keys) {
    const PublicKey found = public_key(file);
    names.push_back(file.file);
    if (!found.key) unfit.push_back(fmt::format("{} {}", file.file, found.reason));
    if (!found.key || !is_signature(found.key, signature, text)) continue;
    if (found.reason.empty()) return file.file;
    unfit.push_back(fmt::format("it is signed by {}, which {}", file.file, found.reason));
  }
  return fail(ErrorCode::invalid,
              fmt::format("it is not signed by a trusted key ({})", fmt::join(unfit.empty() ? names : unfit, "; ")),
              "Ask who makes the mirror for its present public key, and name that in trusted_keys.");
}

Result<void> only_root_changes(const fs::path& file, const fs::path& top, uid_t owner) {
  for (fs::path part = file;; part = part.parent_path()) {
    struct stat info {};
    if (::lstat(part.c_str(), &info) != 0) return fail_errno(part.string());
    const bool guarded = S_ISDIR(info.st_mode) && (info.st_mode & S_ISVTX) != 0;
    if (info.st_uid != 0 && info.st_uid != owner)
      return fail(ErrorCode::denied, fmt::format("{} is owned by user {}, not by root", part.string(), info.st_uid),
                  "sudo chown root " + part.string());
    if ((info.st_mode & (S_IWGRP | S_IWOTH)) != 0 && !guarded)
      return fail(ErrorCode::denied, part.string() + " is writable by others than root",
                  "sudo chmod go-w " + part.string());
    if (part == top || part == part.parent_path()) return {};
  }
}

Result<void> only_root_changes(const RootReader& files, std::string_view path) {
  const fs::path top = TRY(files.real_path("/"));
  TRY(only_root_changes(TRY(files.real_path(path)), top, ::geteuid()));
  return only_root_changes(TRY(files.real_path(fs::path(path).parent_path().string())), top, ::geteuid());
}

}  // namespace p2pd
