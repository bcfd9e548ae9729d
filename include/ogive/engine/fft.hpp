// L5: fast Fourier transforms of real numbers over Eigen's FFT: kissfft unless the program chooses another one by
// Eigen's own switches (EIGEN_FFTW_DEFAULT, EIGEN_MKL_DEFAULT, EIGEN_POCKETFFT_DEFAULT) before it includes anything of
// Eigen.
//
//   forward  X_k = Σ_j x_j e^{−2πi jk/n},  0 ≤ k ≤ n/2          inverse  x_j = 1/n Σ_k X_k e^{2πi jk/n}, X_{n−k} = X̄_k
//
// A plan holds tables and temporaries, all made when it is made: what comes later allocates nothing. It is for one
// thread at a time: `fft_plans`, kept in a context (`context::cache`), has one for each worker. Needs Eigen, which it
// includes. Eigen's code has one name whatever it is compiled for: a program whose units differ in instruction sets
// should include this header in one of them.
#pragma once

#include <ogive/core/context.hpp>
#include <ogive/core/tensor.hpp>

#include <unsupported/Eigen/FFT>

#include <complex>
#include <memory>
#include <mutex>
#include <vector>

namespace ogive {
inline namespace OGIVE_ABI {

/// The smallest size that transforms are fast for, 4 · 2^a 3^b 5^c ≥ count.
constexpr index_t fft_size(index_t count) noexcept {
  constexpr index_t unit = 4;
  for (index_t n = count <= unit ? unit : (count + unit - 1) / unit * unit;; n += unit) {
    index_t rest = n;
    for (const index_t factor : {2, 3, 5}) {
      while (rest % factor == 0) rest /= factor;
    }
    if (rest == 1) return n;
  }
}

/// n real numbers, n a multiple of 4, to n/2 + 1 complex ones and back. Arrays must begin at multiples of 16 bytes and
/// not overlap.
template <std::floating_point Acc>
class real_fft {
 public:
  using complex = std::complex<Acc>;

  explicit real_fft(index_t n) : n_(n) {
    OGIVE_ASSERT(n > 0 && n % 4 == 0);
    fft_.SetFlag(fft_.HalfSpectrum);
    static std::mutex one_planner;  // FFTW plans for one thread at a time
    const std::lock_guard<std::mutex> alone(one_planner);
    tensor<Acc, 1> x({n});
    tensor<complex, 1> X({bins()});
    forward(x.data(), X.data());
    inverse(X.data(), x.data());
  }

  index_t size() const noexcept { return n_; }
  index_t bins() const noexcept { return n_ / 2 + 1; }

  void forward(const Acc* x, complex* X) noexcept { fft_.fwd(X, x, n_); }
  void inverse(const complex* X, Acc* x) noexcept { fft_.inv(x, X, n_); }

 private:
  index_t n_;
  Eigen::FFT<Acc> fft_{};
};

/// The plans of a context, for each size and worker: `ctx.cache<fft_plans<float>>()`.
template <std::floating_point Acc>
class fft_plans {
 public:
  /// Makes what is missing: at the door of a verb, where memory may be allocated.
  void make(index_t n, int workers) {
    for (int worker = 0; worker < workers; ++worker) {
      if (find(n, worker) == nullptr) plans_.push_back({worker, std::make_unique<real_fft<Acc>>(n)});
    }
  }
  /// The plan of a worker, which has been made.
  real_fft<Acc>& at(index_t n, int worker) const noexcept { return *find(n, worker); }

 private:
  struct plan {
    int worker;
    std::unique_ptr<real_fft<Acc>> fft;
  };
  real_fft<Acc>* find(index_t n, int worker) const noexcept {
    for (const plan& one : plans_) {
      if (one.worker == worker && one.fft->size() == n) return one.fft.get();
    }
    return nullptr;
  }
  std::vector<plan> plans_;
};

}  // namespace OGIVE_ABI
}  // namespace ogive
