// HiPPO systems, their normal plus low-rank forms, and the initialisations of diagonal systems.
#include <ogive/maps/hippo.hpp>

#include "tests/golden/tool/trial.hpp"

namespace ogive::golden {

namespace {

using complex = std::complex<double>;

measure measure_of(const golden_case& file) {
  const std::string name = file.text("measure", "legs");
  for (const measure one : {measure::legs, measure::legt, measure::lmu, measure::lagt, measure::glagt, measure::fourier,
                            measure::fourier_decay}) {
    if (name == maps::detail::name_of(one)) return one;
  }
  throw std::runtime_error("the measure '" + name + "' is not known");
}

hippo_parameters parameters_of(const golden_case& file) {
  return {.alpha = file.number("alpha").value_or(0), .beta = file.number("beta").value_or(0.01)};
}

template <class T, std::size_t Rank>
void check(trial& t, const std::string& form, const std::string& name, const tensor<T, Rank>& got) {
  t.check<double>(form, "", {name, testing::flatten(got.all())});
}

void run_hippo(trial& t) {
  const index_t N = t.file.integer("N").value_or(t.file.shape("A").front());
  tensor<double, 2> A({N, N});
  tensor<double, 1> B({N});
  hippo(measure_of(t.file), A, B, parameters_of(t.file));
  check(t, "hippo", "A", A);
  check(t, "hippo", "B", B);
}

/// Eigenvectors have any phase: what does not depend on it, and the real system that the form stands for.
void run_nplr(trial& t) {
  const index_t N = t.file.integer("N").value_or(t.file.shape("V").front());
  const index_t R = t.file.integer("rank").value_or(1), M = N / 2;
  tensor<complex, 1> W({M}), B({M});
  tensor<complex, 2> P({R, M}), V({N, M});
  nplr(measure_of(t.file), W, P, B, V, parameters_of(t.file));

  tensor<double, 2> abs_P({R, M}), p({R, N}), A({N, N});
  tensor<double, 1> abs_B({M}), b({N});
  tensor<complex, 2> P_conj_B({R, M});
  for (index_t m = 0; m < M; ++m) {
    abs_B(m) = std::abs(B(m));
    for (index_t r = 0; r < R; ++r) {
      abs_P(r, m) = std::abs(P(r, m));
      P_conj_B(r, m) = P(r, m) * std::conj(B(m));
    }
    for (index_t n = 0; n < N; ++n) {
      b(n) += 2 * (V(n, m) * B(m)).real();
      for (index_t r = 0; r < R; ++r) p(r, n) += 2 * (V(n, m) * P(r, m)).real();
      for (index_t k = 0; k < N; ++k) A(n, k) += 2 * (V(n, m) * W(m) * std::conj(V(k, m))).real();
    }
  }
  for (index_t n = 0; n < N; ++n)
    for (index_t k = 0; k < N; ++k)
      for (index_t r = 0; r < R; ++r) A(n, k) -= p(r, n) * p(r, k);
  check(t, "nplr", "W", W);
  check(t, "nplr", "absP", abs_P);
  check(t, "nplr", "absB", abs_B);
  check(t, "nplr", "PconjB", P_conj_B);
  check(t, "nplr", "A_dense", A);
  check(t, "nplr", "B_dense", b);
  check(t, "nplr", "p_dense", p);
  for (const char* of_any_phase : {"P", "B", "V"}) t.pass_over(of_any_phase);
}

void run_s4d(trial& t) {
  const std::string init = t.file.text("init", "lin");
  const index_t H = t.file.integer("H").value_or(1);
  const index_t N = t.file.integer("N").value_or(2 * t.file.shape("A").at(1));
  const s4d_scales scales{.real = t.file.number("real_scale").value_or(1),
                          .imag = t.file.number("imag_scale").value_or(1)};
  tensor<complex, 2> A({H, N / 2});
  if (init == "lin") {
    s4d_lin(A.all(), scales);
  } else if (init == "inv") {
    s4d_inv(A.all(), scales);
  } else if (init == "real") {
    s4d_real(A.all());
  } else if (init == "legs") {
    s4d_legs(A.all(), scales);
  } else {
    throw std::runtime_error("the initialisation '" + init + "' is not known");
  }
  check(t, init, "A", A);
}

void run_mamba(trial& t) {
  const auto u = t.file.get<double, 1>("u");
  tensor<double, 2> A_log({u.extent(0), t.file.shape("A_log").at(1)});
  tensor<double, 1> dt(u.extents()), bias(u.extents());
  mamba_A_log(A_log.all());
  log_uniform_steps(u.all(), dt.all(),
                    {.min = t.file.number("dt_min").value_or(1e-3),
                     .max = t.file.number("dt_max").value_or(1e-1),
                     .floor = t.file.number("dt_init_floor").value_or(1e-4)});
  softplus_bias(std::as_const(dt).all(), bias.all());
  check(t, "mamba", "A_log", A_log);
  check(t, "mamba", "dt", dt);
  check(t, "mamba", "dt_bias", bias);
}

const registration systems("hippo", run_hippo);
const registration forms("nplr", run_nplr);
const registration diagonal("s4d_init", run_s4d);
const registration selective("mamba_init", run_mamba);

}  // namespace

}  // namespace ogive::golden
