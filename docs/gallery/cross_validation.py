"""Cross-validation with scikit-learn: a grid search through joblib, and folds as plain tasks."""

import joblib
import numpy as np
from sklearn.datasets import make_classification
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import weft

X, y = make_classification(n_samples=400, n_features=10, n_informative=5, random_state=0)


def model(n_neighbors=5):
    return make_pipeline(StandardScaler(), KNeighborsClassifier(n_neighbors))


def score(X, y, train, test, n_neighbors):
    """Train on one part of the data and return the accuracy on the other; runs on a worker."""
    fitted = model(n_neighbors).fit(X[train], y[train])
    return float(fitted.score(X[test], y[test]))


with weft.Client(n_workers=2, threads_per_worker=1) as client:
    # 1. Whatever takes n_jobs= runs on the cluster inside parallel_config("weft").
    grid = {"kneighborsclassifier__n_neighbors": [1, 5, 9, 15]}
    with joblib.parallel_config("weft"):
        search = GridSearchCV(model(), grid, cv=StratifiedKFold(5), n_jobs=-1).fit(X, y)
    print("grid search:", search.best_params_, f"accuracy {search.best_score_:.3f}")

    # 2. The same by hand: the data is sent once, and each fold of each candidate is a task.
    data, target = client.scatter([X, y])
    means = {}
    for n in (1, 5, 9, 15):
        folds = [
            client.submit(score, data, target, train, test, n)
            for train, test in StratifiedKFold(5).split(X, y)
        ]
        means[n] = client.submit(np.mean, folds)  # not waited for: all candidates run at once
    means = client.gather(means)
    for n, mean in means.items():
        print(f"{n:3} neighbours: accuracy {mean:.3f}")

best = max(means, key=means.get)
assert search.best_params_ == {"kneighborsclassifier__n_neighbors": best}
