# The Cox model named $model, of the cases in $lung or $pbc: cox-MODEL.csv.
# SPDX-License-Identifier: Apache-2.0
suppressMessages(library(survival))

name <- Sys.getenv("model")
models <- list(
  sex = list(data = "lung", formula = Surv(time, status) ~ sex),
  clinical = list(data = "lung", formula = Surv(time, status) ~ age + sex + ph.ecog),
  # The five numbers of the Mayo risk score for primary biliary cholangitis.
  mayo = list(data = "pbc", formula = Surv(time, status) ~ age + edema + log(bili) + log(protime) + log(albumin))
)
model <- models[[name]]
if (is.null(model)) stop("no model ", name, "; there are ", toString(names(models)))

fit <- coxph(model$formula, data = read.csv(Sys.getenv(model$data)))
found <- summary(fit)$coefficients
result <- data.frame(model = name, n = fit$n, events = fit$nevent, term = rownames(found),
                     coef = found[, "coef"], se = found[, "se(coef)"], p = found[, "Pr(>|z|)"])
result[c("coef", "se", "p")] <- lapply(result[c("coef", "se", "p")], signif, 6)
write.csv(result, paste0("cox-", name, ".csv"), row.names = FALSE, quote = FALSE)
