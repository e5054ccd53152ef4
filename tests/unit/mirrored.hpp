// SPDX-License-Identifier: MIT
#pragma once

#include <arpa/inet.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "buildable.hpp"
#include "machine/modules/mirror_make.hpp"
#include "machine/modules/mirrored_build.hpp"

namespace p2pd::test {

/// An Ed25519 key as PEM: private, public, and certificates of it.
class MadeKey {
 public:
  MadeKey() : key_(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"), EVP_PKEY_free) {}

  std::string pem() const {
    return text([&](BIO* out) { PEM_write_bio_PrivateKey(out, key_.get(), nullptr, nullptr, 0, nullptr, nullptr); });
  }
  std::string public_pem() const {
    return text([&](BIO* out) { PEM_write_bio_PUBKEY(out, key_.get()); });
  }
  /// Valid from `begin` to `end`, in seconds from now.
  std::string certificate(long begin, long end) const {
    const std::shared_ptr<X509> made(X509_new(), X509_free);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), begin);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), end);
    X509_set_pubkey(made.get(), key_.get());
    X509_sign(made.get(), key_.get(), nullptr);
    return text([&](BIO* out) { PEM_write_bio_X509(out, made.get()); });
  }

 private:
  static std::string text(const std::function<void(BIO*)>& write) {
    const std::shared_ptr<BIO> out(BIO_new(BIO_s_mem()), BIO_free_all);
    write(out.get());
    char* bytes = nullptr;
    const long size = BIO_get_mem_data(out.get(), &bytes);
    return {bytes, static_cast<std::size_t>(size)};
  }
  std::shared_ptr<EVP_PKEY> key_;
};

/// A machine that built once and made a mirror of it at /srv/mirror, and then lost the build.
struct Mirrored : Buildable {
  Mirrored() {
    file("etc/p2pd/mirror.pub", key.public_pem());
    with["mirror"] = "file:///srv/mirror/";
    with["trusted_keys"] = {"/etc/p2pd/mirror.pub"};
    const Parameters both = std::exchange(with, {{"entry", "test/main"}});
    REQUIRE(apply(kDriverBuildAction));
    file(source_patch_of(entry()), "a patch\n");
    REQUIRE(make());
    undo();
    with = both;
  }
  Result<MirrorMade> make(std::chrono::days valid = std::chrono::days(1)) {
    const Host machine = host();
    Host here(Root::open("/").value(), plain);
    return make_mirror(machine, catalogue(machine).value(), here,
                       {directory / "srv/mirror", {"mirror.key", key.pem()}, valid});
  }
  void forget_build() const { std::filesystem::remove_all(directory / "var/cache/p2pd/builds"); }
  std::string folder() { return "builds/" + std::filesystem::path(builds()[0].directory).filename().string(); }
  std::filesystem::path served(const std::string& path) const { return directory / ("srv/mirror/" + path); }
  MirrorManifest manifest() const {
    std::ifstream in(served("manifest"), std::ios::binary);
    const std::string text(std::istreambuf_iterator<char>(in), {});
    return read_manifest(text, {{"mirror.pub", key.public_pem()}}).value();
  }
  void sign(const MirrorManifest& changed) const { sign(changed, key); }
  void sign(const MirrorManifest& changed, const MadeKey& by) const {
    file("srv/mirror/manifest", signed_manifest(changed, {"mirror.key", by.pem()}).value());
  }
  /// Applies; returns why the build is not the mirror's; empty: it is. It is sound either way, and was built if
  /// refused.
  std::string refused() {
    const long before = runner.count("make");
    const auto applied = apply(kDriverBuildAction);
    INFO((applied ? "" : applied.error().message));
    REQUIRE(applied);
    const Finding finding = check(kDriverBuild).value();
    CHECK(finding.verdict == Verdict::pass);
    const nlohmann::json mirror = finding.facts["builds"][0].value("mirror", nlohmann::json::object());
    const std::string reason = mirror.value("refused", "");
    CHECK(runner.count("make") == before + (reason.empty() ? 0 : 1));
    CHECK(mirror.value("url", "") == mirror_of(with).url);
    CHECK(finding.evidence.back().value == (reason.empty() ? "taken from " + mirror_of(with).url
                                                           : fmt::format("mirror refused: {}; built here", reason)));
    return reason;
  }

  MadeKey key;
  ProcessRunner plain;
};

/// Answers every request on loopback with one status line, or with silence.
class OneAnswer {
 public:
  explicit OneAnswer(std::string answer) : answer_(std::move(answer)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    ::bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), size);
    ::listen(socket_.get(), 8);
    ::getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    url = fmt::format("http://127.0.0.1:{}", ntohs(address.sin_port));
    thread_ = std::thread([this] { serve(); });
  }
  ~OneAnswer() {
    ends_ = true;
    thread_.join();
  }
  std::string url;

 private:
  void serve() {
    std::vector<Descriptor> held;
    while (!ends_) {
      pollfd ready{socket_.get(), POLLIN, 0};
      if (::poll(&ready, 1, 20) < 1) continue;
      Descriptor client(::accept(socket_.get(), nullptr, nullptr));
      std::array<char, 4096> request{};
      (void)::recv(client.get(), request.data(), request.size(), 0);
      (void)::send(client.get(), answer_.data(), answer_.size(), MSG_NOSIGNAL);
      if (answer_.empty()) held.push_back(std::move(client));
    }
  }
  std::string answer_;
  Descriptor socket_{::socket(AF_INET, SOCK_STREAM, 0)};
  std::atomic<bool> ends_ = false;
  std::thread thread_;
};

inline bool says(const std::string& text, std::string_view part) {
  UNSCOPED_INFO(text);
  return text.find(part) != std::string::npos;
}

}  // namespace p2pd::test
